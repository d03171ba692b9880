// What keeps strangers out of a job's connections, and how they are counted.
#pragma once

#include "base/secret.h"

#include <functional>
#include <string>

namespace trireme {

/// The same for all ranks of a job, but for the notice.
struct Guard {
  Secret secret{};       ///< none: whoever says a rank's hello is taken for it
  bool encrypt = false;  ///< all that is said once both ends have proved the secret
  /// Hears of those that were turned away, from whatever thread found it out.
  std::function<void(const std::string&)> notice = [](const std::string&) {};
};

/// Counts those that were turned away, and gives notice of the first few, and then of ever fewer: thousands fill no
/// log.
class Doorman {
 public:
  explicit Doorman(std::function<void(const std::string&)> notice) : notice_(std::move(notice)) {}

  /// `what` completes "a stranger was turned away: ...".
  void turn_away(const std::string& what);

  int count() const { return count_; }

 private:
  std::function<void(const std::string&)> notice_;
  int count_ = 0;
  int next_notice_ = 1;
};

}  // namespace trireme
