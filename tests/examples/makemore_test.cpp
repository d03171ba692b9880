// The parts of examples/makemore: its words, and its model against the one by hand.
#include "examples/makemore/by_hand.h"
#include "examples/makemore/model.h"
#include "examples/makemore/words.h"
#include "support/run.h"
#include "torch/ranks.h"

#include <gtest/gtest.h>

#include <torch/torch.h>

namespace trireme::test {
namespace {

std::string complaint(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST(Makemore, TakesWordsOutOfAText) {
  const TemporaryFolder folder;
  const std::string path = folder.write("text", "It's Ann's\n\n  boat -- 3 oars!");
  EXPECT_EQ(makemore::read_words(path), (std::vector<std::string>{"it", "s", "ann", "s", "boat", "oars"}));
  EXPECT_EQ(complaint([&] { makemore::read_words(folder.write("none", "1 2 3\n")); }),
            folder / "none" + " has no words of the letters a to z: name another text file");
  EXPECT_EQ(complaint([&] { makemore::read_words(folder / "absent"); }),
            folder / "absent" + " can't be opened (No such file or directory): name a text file that can be read");
  EXPECT_NE(complaint([] { makemore::split({"one"}); }).find("1 words are too few"), std::string::npos);
}

TEST(Makemore, MakesASampleOfEachLetter) {
  const makemore::Samples samples = makemore::samples_of({"ab", "z"});
  EXPECT_TRUE(samples.targets.equal(torch::tensor({1, 2, 0, 26, 0}, torch::kLong)));
  EXPECT_TRUE(samples.contexts.equal(
      torch::tensor({0, 0, 0, 0, 0, 1, 0, 1, 2, 0, 0, 0, 0, 0, 26}, torch::kLong).view({5, makemore::kBlock})));
  EXPECT_EQ(makemore::letter(0), '.');
  EXPECT_EQ(makemore::letter(26), 'z');
}

TEST(Makemore, KeepsATenthForValidation) {
  std::vector<std::string> words;
  for (char a = 'a'; a <= 'z'; ++a) {
    for (char b = 'a'; b <= 'z'; ++b) words.push_back({a, b});
  }
  const makemore::Split split = makemore::split(words);
  EXPECT_EQ(split.training.size() + split.validation.size(), 3 * 26 * 26);
  EXPECT_NEAR(static_cast<double>(split.validation.size()) / (3 * 26 * 26), 0.1, 0.04);
  EXPECT_TRUE(split.validation.contexts.equal(makemore::split(words).validation.contexts));
}

// Ranks with 3 and 5 samples: the sum of their gradients is that of all 8, by hand.
TEST(Makemore, ModelIsTheOneByHand) {
  const torch::Tensor contexts = torch::arange(24).remainder(7).view({8, 3}) * 3;
  const torch::Tensor targets = torch::arange(8) * 3;
  on_ranks(2, [&](Communicator& world) {
    makemore::Model model(makemore::ModelOptions{}, world);
    model->to(torch::kDouble);
    const makemore::Weights weights = {model->C.detach(),
                                       model->W1.detach(),
                                       model->b1.detach(),
                                       model->W2.detach(),
                                       model->b2.detach(),
                                       model->norm->weight.detach().unsqueeze(0),
                                       model->norm->bias.detach().unsqueeze(0)};
    const makemore::Forward forward = makemore::forward_by_hand(weights, contexts, targets);
    const makemore::Backward expected = makemore::backward_by_hand(weights, forward, contexts, targets);

    const std::int64_t first = 3 * world.rank(), count = 3 + 2 * world.rank();
    const torch::Tensor logits = model(contexts.narrow(0, first, count));
    EXPECT_LE((logits - forward.logits.narrow(0, first, count)).abs().max().item<double>(), 1e-12);
    const torch::Tensor loss = torch::nll_loss(torch::log_softmax(logits, 1), targets.narrow(0, first, count),
                                               /*weight=*/{}, torch::Reduction::Sum);
    (loss / 8).backward();
    const auto check = [&](const torch::Tensor& parameter, const torch::Tensor& gradient) {
      torch::Tensor sum = parameter.grad().contiguous().clone();
      world.allreduce(std::span(sum.data_ptr<double>(), sum.numel()));
      EXPECT_LE((sum - gradient.view_as(sum)).abs().max().item<double>(), 1e-12);
    };
    check(model->C, expected.C);
    check(model->W1, expected.W1);
    check(model->b1, expected.b1);
    check(model->W2, expected.W2);
    check(model->b2, expected.b2);
    check(model->norm->weight, expected.bngain);
    check(model->norm->bias, expected.bnbias);

    // In eval mode each rank may write by itself.
    model->eval();
    if (world.rank() == 0) {
      auto generator = torch::make_generator<torch::CPUGeneratorImpl>(1);
      auto again = torch::make_generator<torch::CPUGeneratorImpl>(1);
      EXPECT_EQ(model->sample(generator), model->sample(again));
    }
  });
}

}  // namespace
}  // namespace trireme::test
