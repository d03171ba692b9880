// All-to-all: block d of rank s ends as block s of rank d.
//   direct    1 round, (P-1)/P of the buffer sent, every message straight to where it belongs
//   factored  as many rounds as P has prime factors; ranks are digits in that mixed base, and a round puts one digit
//             right. A rank talks to few peers, which suits a torus; it sends most blocks more than once.
// Thakur, Rabenseifner and Gropp, 2005; dimension exchange as in Bruck et al., 1997.
#include "algorithms/algorithms.h"
#include "algorithms/parts.h"

namespace trireme {

Program direct_all_to_all(int rank, int ranks) {
  const Circle circle{ranks};
  Program program{.blocks = ranks};
  for (int i = 1; i < ranks; ++i) program.send(circle(rank + i), circle(rank + i));
  for (int i = 1; i < ranks; ++i) program.receive(circle(rank - i), circle(rank - i));
  return program;
}

Program factored_all_to_all(int rank, int ranks) {
  Program program{.blocks = ranks};
  int weight = ranks;  // of the digit in hand; the first one counts most
  for (const int base : prime_factors(ranks)) {
    weight /= base;
    const Circle circle{base};
    const int digit = rank / weight % base;
    const auto peer = [&](int value) { return rank + (value - digit) * weight; };
    // All blocks that have `value` as this digit.
    const auto each_run = [&](int value, auto&& step) {
      for (int first = value * weight; first < ranks; first += base * weight) step(Run(first, weight));
    };
    for (int i = 1; i < base; ++i) {
      const int value = circle(digit + i);
      each_run(value, [&](Run run) { program.send(run, peer(value)); });
    }
    for (int i = 1; i < base; ++i) {
      const int value = circle(digit - i);
      each_run(value, [&](Run run) { program.receive(run, peer(value)); });
    }
  }
  return program;
}

}  // namespace trireme
