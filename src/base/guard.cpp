#include "base/guard.h"

#include <fmt/format.h>

namespace trireme {

void Doorman::turn_away(const std::string& what) {
  constexpr int kFew = 5;
  if (++count_ < next_notice_) return;
  next_notice_ = count_ < kFew ? count_ + 1 : 10 * count_;
  notice_(fmt::format("a stranger was turned away ({} so far): {}", count_, what));
}

}  // namespace trireme
