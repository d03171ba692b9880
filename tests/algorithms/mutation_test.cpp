// The verifier against mutants of every algorithm: what it accepts really works, and what it rejects really does not.
#include "support/brute_force.h"
#include "support/mutants.h"
#include "support/rows.h"
#include "trireme/algorithms.h"
#include "trireme/verify.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

namespace trireme {
namespace {

class MutantsOf : public test::EveryRow {};

struct Count {
  int mutants = 0;
  int rejected = 0;
  int harmless = 0;  // rejected, though the numbers come out right
};

// These may do no harm, if what they make is overwritten later; the verifier rejects them anyway.
bool may_be_harmless(std::string_view message) {
  return message.ends_with("holds nothing yet") || message.ends_with("contribution twice");
}

void try_mutants(const Schedule& original, int mutants, std::uint64_t seed, Count& count) {
  test::Mutator mutator(original, seed);
  for (int i = 0; i < mutants; ++i) {
    const auto [mutant, mistake] = mutator.mutant();
    const Proof proof = verify(mutant);
    ++count.mutants;
    // A wrong schedule goes wrong in any order; a right one must go right in many.
    const int tries = proof.proven() ? 4 : 1;
    const std::string problem = test::brute_force(mutant, tries, test::mix(seed, i));
    if (proof.proven()) {
      ASSERT_EQ(problem, "") << "accepted, but wrong: " << mistake << ", mutant " << i << " of seed " << seed << '\n'
                             << to_text(mutant);
      continue;
    }
    ++count.rejected;
    if (!problem.empty()) continue;
    ++count.harmless;
    ASSERT_TRUE(may_be_harmless(proof.finding->message)) << "rejected, but right: " << proof.finding->message << '\n'
                                                         << mistake << ", mutant " << i << " of seed " << seed << '\n'
                                                         << to_text(mutant);
  }
}

TEST_P(MutantsOf, AreJudgedRightly) {
  Count count;
  for (const int ranks : {2, 3, 4, 5, 7, 8, 12, 16}) {
    const std::vector<Setting> settings = test::settings_of(row(), ranks);
    if (settings.empty()) continue;
    const int mutants = (ranks < 10 ? 60 : 20) * test::kEffort;
    const int each = mutants / static_cast<int>(settings.size()) + 1;
    for (std::size_t i = 0; i < settings.size(); ++i) {
      SCOPED_TRACE(test::describe(settings[i]));
      const Schedule schedule = make_schedule(row(), settings[i]);
      if (!test::Mutator::possible(schedule)) continue;
      try_mutants(schedule, each, test::mix(7, ranks, i), count);
      if (HasFatalFailure()) return;
    }
  }
  RecordProperty("mutants", count.mutants);
  RecordProperty("rejected", count.rejected);
  RecordProperty("harmless", count.harmless);
  EXPECT_GT(count.rejected, count.mutants / 2) << "of " << count.mutants;
}

INSTANTIATE_TEST_SUITE_P(Every, MutantsOf, ::testing::ValuesIn(test::every_row()), test::test_name);

}  // namespace
}  // namespace trireme
