#include "drawing.h"
#include "record.h"
#include "trireme/units.h"

#include <algorithm>

namespace makemore {
namespace {

using trireme::escape_xml;

// Okabe and Ito's colours, which everyone can tell apart; lighter ones on dark.
constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a1f26; --soft: #5a6572; --grid: #e4e8ed; --axis: #9aa5b1; --on: #ffffff;
  --ranks: #4aa3d8; --one: #c24e00; --batch: #8a94a0; --forward: #0072b2; --backward: #3b3a9e; --optimiser: #a8467f;
  --hidden: #00856a; --waiting: #d55e00; --good: #00765e; --bad: #b3261e; }
@media (prefers-color-scheme: dark) { :root {
  --page: #12161b; --card: #1b2128; --ink: #e8ecf1; --soft: #a3aebb; --grid: #2d353f; --axis: #667280; --on: #0d1014;
  --ranks: #3d8fc4; --one: #ffa45c; --batch: #8a94a0; --forward: #56b4e9; --backward: #a3a1ff; --optimiser: #e39ac4;
  --hidden: #35c9a5; --waiting: #ff9145; --good: #35c9a5; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 system-ui, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 20px 56px; }
h1 { font-size: 28px; line-height: 1.2; margin: 0 0 6px; }
h2 { font-size: 19px; margin: 0 0 6px; }
p { margin: 0 0 12px; max-width: 76ch; } .lead, .note { color: var(--soft); } .note { font-size: 14px; }
.picture + .note { margin: 14px 0 0; } .whole { white-space: nowrap; }
section { background: var(--card); border: 1px solid var(--grid); border-radius: 12px; padding: 20px 22px;
  margin-top: 20px; }
.numbers { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 14px; margin-top: 22px; }
.number { background: var(--card); border: 1px solid var(--grid); border-radius: 12px; padding: 14px 16px; }
.number b { display: block; font-size: 24px; line-height: 1.25; font-variant-numeric: tabular-nums; }
.number span { color: var(--soft); font-size: 14px; } .good b { color: var(--good); } .bad b { color: var(--bad); }
.picture { overflow-x: auto; } svg { display: block; width: 100%; min-width: 680px; height: auto; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 20px; margin: 0 0 10px; padding: 0; list-style: none;
  font-size: 14px; }
.legend i { display: inline-block; width: 14px; height: 14px; border-radius: 3px; margin-right: 7px;
  vertical-align: -2px; }
.words { display: flex; flex-wrap: wrap; gap: 8px; padding: 0; margin: 4px 0 0; list-style: none; }
.words li { border: 1px solid var(--grid); border-radius: 999px; padding: 3px 14px; overflow-wrap: anywhere; }
ul.plain { margin: 0; padding-left: 20px; } ul.plain li { margin-bottom: 6px; }
text { font-size: 12.5px; fill: var(--ink); } .tick { fill: var(--soft); font-size: 12px; }
.rank { font-weight: 600; font-size: 14px; } .on { fill: var(--on); font-size: 12px; }
.end { text-anchor: end; } .middle { text-anchor: middle; } .grid { stroke: var(--grid); } .axis { stroke: var(--axis); }
path.ranks { fill: none; stroke: var(--ranks); stroke-width: 2; stroke-linejoin: round; }
circle.one { fill: none; stroke: var(--one); stroke-width: 2; }
.batch { fill: var(--batch); background: var(--batch); } .forward { fill: var(--forward); background: var(--forward); }
.backward { fill: var(--backward); background: var(--backward); }
.optimiser { fill: var(--optimiser); background: var(--optimiser); }
.hidden { fill: var(--hidden); background: var(--hidden); }
.waiting, .waited { fill: var(--waiting); background: var(--waiting); }
i.ranks { background: var(--ranks); } i.one { border: 2.5px solid var(--one); border-radius: 50%; }
)";

struct Entry {
  const char* name;
  const char* words;
};

std::string legend(std::initializer_list<Entry> entries) {
  std::string list = "<ul class=\"legend\">";
  for (const Entry& entry : entries) list += fmt::format("<li><i class=\"{}\"></i>{}</li>", entry.name, entry.words);
  return list + "</ul>\n";
}

std::string number(const std::string& value, const std::string& what, const char* classes = "") {
  return fmt::format("<div class=\"number {}\"><b>{}</b><span>{}</span></div>\n", classes, escape_xml(value),
                     escape_xml(what));
}

// 12345678 as 12,345,678.
std::string grouped(double value) {
  const std::string digits = fmt::format("{:.0f}", value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string numbers(const Record& record) {
  std::string all = "<div class=\"numbers\">\n";
  if (record.difference) {
    const bool good = *record.difference <= record.tolerance && record.identical;
    all += number(
        fmt::format("{:.2g}", *record.difference),
        fmt::format("largest difference of any parameter to one process; at most {:g} is allowed", record.tolerance),
        good ? "good" : "bad");
  }
  all +=
      number(record.identical ? "same bits" : "different",
             fmt::format("the parameters of all {} ranks in the end", record.ranks), record.identical ? "good" : "bad");
  all += number(fmt::format("{:.3f}", record.validation_loss), "loss on words that the model has not seen");
  all += number(grouped(record.samples_per_second), "samples a second, all ranks together");
  all +=
      number(fmt::format("{:.0f} %", 100 * record.waited), "of the time rank 0 was in communication that nothing hid");
  return all + "</div>\n";
}

std::string losses(const Record& record) {
  const bool compared = record.difference.has_value();
  std::string section = "<section id=\"loss\"><h2>Loss</h2>\n";
  if (compared) {
    double largest = 0;
    for (std::size_t i = 0; i < std::min(record.losses.size(), record.one_process.size()); ++i) {
      const double apart = std::abs(record.losses[i] - record.one_process[i]);
      // What is not a number is larger than all.
      if (!std::isnan(largest) && !(apart <= largest)) largest = apart;
    }
    section += fmt::format(
        "<p>The mean of the ranks' gradients is the gradient of the joined batch, so {} ranks with batches of {} learn "
        "what one process learns with batches of {}: the curves lie on each other, at most <span "
        "class=\"whole\">{:.2g}</span> apart in any step. The "
        "one process has no ranks, no autograd and no optimiser, only arithmetic that is written out.</p>\n",
        record.ranks, record.batch, record.ranks * record.batch, largest);
    const std::size_t every = ring_every(record.one_process.size());
    const std::string rings =
        "one process with the joined batch" + (every > 1 ? fmt::format(", one step in {}", every) : "");
    section += legend({{"ranks", "the ranks together"}, {"one", rings.c_str()}});
  } else {
    section += "<p class=\"note\">Run with --check to see one process with the joined batch beside it.</p>\n";
  }
  return section + "<div class=\"picture\">" + draw_losses(record) + "</div></section>\n";
}

// How much of the time in which any bucket was being reduced went by behind backward, on all ranks.
double hidden_part(const Timelines& timelines) {
  double reducing = 0, waiting = 0;
  for (const auto& steps : timelines) {
    for (const StepSpans& step : steps) {
      std::int64_t counted = 0;  // until when: buckets start in order, and what two share counts once
      for (const auto& [bytes, reduction] : step.buckets) {
        const Span fresh{std::max(reduction.begin, counted), reduction.end};
        if (fresh.end <= fresh.begin) continue;
        reducing += fresh.seconds();
        for (const auto& [span, hidden] : step.parts_of(fresh)) waiting += hidden ? 0 : span.seconds();
        counted = fresh.end;
      }
    }
  }
  return reducing > 0 ? 1 - waiting / reducing : 0;
}

std::string step(const Record& record) {
  const StepSpans& shown = record.timelines.front().at(typical_step(record.timelines));
  return fmt::format(
             "<section id=\"step\"><h2>One step on each rank</h2>\n<p>Gradients are reduced bucket by bucket while "
             "backward still computes those before them. Of the time in which a bucket was being reduced, {:.0f} % was "
             "hidden behind backward in the last {} steps. Below is step {}, the one of middle length on rank 0.</p>\n",
             100 * hidden_part(record.timelines), record.timelines.front().size(), shown.step) +
         legend({{"batch", "batch"},
                 {"forward", "forward"},
                 {"backward", "backward"},
                 {"waiting", "waiting for others"},
                 {"optimiser", "optimiser"},
                 {"hidden", "reduction of a bucket, hidden"},
                 {"waited", "reduction of a bucket, waited for"}}) +
         "<div class=\"picture\">" + draw_step(record) +
         "</div>\n<p class=\"note\">Batch norm over the joined batch stops forward and backward for a small message "
         "each: nothing can hide those. If there are more ranks than cores, ranks also wait for each other's turns. "
         "The same and more steps are in trace.json, beside this page: open it in Perfetto.</p></section>\n";
}

std::string words(const Record& record) {
  std::string section = "<section id=\"words\"><h2>Words that the model makes up</h2>\n<ul class=\"words\">";
  for (const std::string& word : record.words) {
    section += fmt::format("<li>{}</li>", word.empty() ? "<i>(an empty word)</i>" : escape_xml(word));
  }
  return section + "</ul></section>\n";
}

std::string choices(const Record& record) {
  std::string section = "<section id=\"algorithm\"><h2>How gradients were reduced, and why</h2>\n<ul class=\"plain\">";
  for (const std::string& choice : record.choices) section += fmt::format("<li>{}</li>", escape_xml(choice));
  return section + "</ul></section>\n";
}

}  // namespace

std::string draw_report(const Record& record) {
  std::string page = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>makemore on {0} ranks</title>\n<link rel=\"icon\" href=\"data:,\">\n<style>{1}</style></head>\n"
      "<body><main>\n<h1>makemore on {0} ranks</h1>\n"
      "<p class=\"lead\">A model of letters learnt {2} in {3} steps: batches of {4} on each rank, {5} hidden units, "
      "learning rate {6:g}, {7}.</p>\n",
      record.ranks, kStyle, escape_xml(record.text), record.steps, record.batch, record.hidden, record.rate,
      record.dtype);
  page += numbers(record) + losses(record) + step(record) + words(record) + choices(record);
  return page + "</main></body></html>\n";
}

}  // namespace makemore
