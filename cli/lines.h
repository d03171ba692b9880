// What many processes write, as whole lines to one place.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace trireme::cli {

/// Bytes on their way to stdout or stderr, kept until these take them: who waits for other things, too, is never held
/// up by a slow reader.
class Sink {
 public:
  explicit Sink(int descriptor) : descriptor_(descriptor) {}

  int descriptor() const { return descriptor_; }
  void add(std::string_view bytes);

  bool pending() const { return written_ < bytes_.size(); }
  /// So much is pending that no more should be added.
  bool full() const;
  /// Nobody reads it any more; what is added is forgotten.
  bool broken() const { return broken_; }

  /// Writes a piece; to be called when the descriptor is writable.
  void write_some();

  /// What is pending, for somebody else to write.
  std::string take();

 private:
  int descriptor_;
  std::string bytes_;
  std::size_t written_ = 0;
  bool broken_ = false;
};

/// Puts a prefix before each line that one process writes, and passes on whole lines only.
class Lines {
 public:
  Lines(std::string prefix, Sink& sink) : prefix_(std::move(prefix)), sink_(&sink) {}

  /// Passes on everything at once, and as it is.
  static Lines as_they_come(Sink& sink) {
    Lines lines("", sink);
    lines.whole_ = false;
    return lines;
  }

  void add(std::string_view bytes);

  /// Nothing more comes: a last line without its end is given one.
  void end();

 private:
  std::string prefix_;
  Sink* sink_;
  bool whole_ = true;
  std::string line_;  // that has begun
};

}  // namespace trireme::cli
