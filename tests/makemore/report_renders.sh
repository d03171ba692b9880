#!/usr/bin/env bash
# The report in a real browser.  report_renders.sh TRIREME MAKEMORE
# Lays the page out wide and narrow, and asks the browser whether anything failed, overlaps or sticks out.
# Status 77, which ctest reports as skipped, without Chromium.
set -euo pipefail
trireme=$1 makemore=$2
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
  echo 'skipped: Chromium is not installed (tools/setup test does it)'
  exit 77
}

folder=$(mktemp -d)
# What the browser started may still be writing there.
trap 'rm -rf "$folder" 2>/dev/null || { sleep 2; rm -rf "$folder" || true; }' EXIT
"$trireme" run -n 3 "$makemore" --steps 30 --check --quiet --bucket-bytes 4KiB --record "$folder"

# The page itself has no scripts; this one looks at it from the end of a copy.
{
  sed 's|</body>.*||' "$folder/report.html"
  cat <<'END'
<script>
const found = [];
for (const svg of document.querySelectorAll("svg")) {
  const page = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBoundingClientRect()]);
  texts.forEach(([words, box], i) => {
    if (box.width == 0) found.push(`'${words}' is not drawn`);
    if (box.left < page.left - 1 || box.right > page.right + 1 || box.top < page.top - 1 || box.bottom > page.bottom + 1)
      found.push(`'${words}' sticks out`);
    for (const [others, other] of texts.slice(i + 1))
      if (box.left < other.right && other.left < box.right && box.top + 2 < other.bottom && other.top + 2 < box.bottom)
        found.push(`'${words}' lies on '${others}'`);
  });
}
for (const shape of document.querySelectorAll("svg rect, svg path, svg line")) {
  const style = getComputedStyle(shape);
  if (shape.getTotalLength() == 0 || (style.fill == "none" && style.stroke == "none"))
    found.push(`a ${shape.tagName} of class '${shape.className.baseVal}' is not drawn`);
}
if (document.querySelectorAll("svg").length != 2) found.push("there are not two pictures");
if (document.querySelectorAll("svg rect").length < 3 * 5) found.push("the timeline lacks bars");
if (document.documentElement.scrollWidth > innerWidth) found.push("the page is wider than the window");
document.body.dataset.found = found.join("; ") || "nothing";
</script></body></html>
END
} >"$folder/looked_at.html"

for width in 1200 500; do
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$folder/profile" \
    --window-size=$width,1600 --enable-logging=stderr --dump-dom "file://$folder/looked_at.html" \
    >"$folder/dom" 2>"$folder/log" || { cat "$folder/log"; echo "FAILED: the browser did not end well"; exit 1; }
  if grep 'CONSOLE' "$folder/log"; then
    echo "FAILED: the browser complains, $width wide"
    exit 1
  fi
  found=$(sed -n 's/.*data-found="\([^"]*\)".*/\1/p' "$folder/dom")
  if [[ $found != nothing ]]; then
    echo "FAILED: $width wide: ${found:-the page was not laid out}"
    exit 1
  fi
done
