#include "cli/lines.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <unistd.h>
#include <utility>

namespace trireme::cli {
namespace {

constexpr std::size_t kFullBytes = std::size_t{1} << 20;
// A line that does not end is cut here.
constexpr std::size_t kMostLineBytes = std::size_t{64} << 20;

}  // namespace

void Sink::add(std::string_view bytes) {
  if (broken_) return;
  if (!pending()) {
    bytes_.clear();
    written_ = 0;
  } else if (written_ > bytes_.size() / 2) {
    bytes_.erase(0, written_);
    written_ = 0;
  }
  bytes_ += bytes;
}

bool Sink::full() const { return bytes_.size() - written_ > kFullBytes; }

// A pipe that is writable takes this many bytes without making anybody wait.
void Sink::write_some() {
  const std::size_t count = std::min<std::size_t>(bytes_.size() - written_, PIPE_BUF);
  const ssize_t written = ::write(descriptor_, bytes_.data() + written_, count);
  if (written >= 0) {
    written_ += static_cast<std::size_t>(written);
  } else if (errno != EINTR && errno != EAGAIN) {
    broken_ = true;
    bytes_.clear();
    written_ = 0;
  }
}

std::string Sink::take() {
  std::string taken = std::move(bytes_).substr(written_);
  bytes_.clear();
  written_ = 0;
  return taken;
}

void Lines::add(std::string_view bytes) {
  if (!whole_) {
    sink_->add(bytes);
    return;
  }
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t count = newline == std::string_view::npos ? bytes.size() : newline;
    line_ += bytes.substr(0, count);
    if (newline == std::string_view::npos && line_.size() < kMostLineBytes) return;
    bytes.remove_prefix(std::min(bytes.size(), count + 1));
    sink_->add(prefix_);
    sink_->add(line_);
    sink_->add("\n");
    line_.clear();
  }
}

void Lines::end() {
  if (!line_.empty()) add("\n");
}

}  // namespace trireme::cli
