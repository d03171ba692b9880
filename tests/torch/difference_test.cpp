// What tests measure by: it may not take a model that is not a number for a good one.
#include "torch/difference.h"

#include <cmath>
#include <limits>

namespace trireme::test {
namespace {

TEST(LargestDifference, IsTheLargestOfAnyElement) {
  const auto zeros = [] {
    return std::vector<torch::Tensor>{torch::zeros({2, 2}), torch::zeros({0}), torch::zeros({3})};
  };
  auto other = zeros();
  EXPECT_EQ(largest_difference(zeros(), other), 0);
  other[0][1][0] = -3;
  other[2][0] = 2;
  EXPECT_EQ(largest_difference(zeros(), other), 3);
  EXPECT_EQ(largest_difference(other, zeros()), 3);
  EXPECT_EQ(largest_difference({torch::tensor({5})}, {torch::tensor({3})}), 2);  // whole numbers too
}

TEST(LargestDifference, IsNotANumberIfAnElementIsNot) {
  for (const int where : {0, 1, 2}) {
    for (const bool first : {true, false}) {
      std::vector<torch::Tensor> good, bad;
      for (int i = 0; i < 3; ++i) {
        good.push_back(torch::ones({2, 3}));
        bad.push_back(torch::ones({2, 3}) * i);
      }
      bad[where][1][1] = std::numeric_limits<float>::quiet_NaN();
      const double difference = first ? largest_difference(bad, good) : largest_difference(good, bad);
      EXPECT_TRUE(std::isnan(difference)) << where;
      EXPECT_FALSE(difference <= 1e9);
    }
  }
}

// As the examples and the installed program write it, which have no tests' headers.
TEST(LargestDifference, OfParametersAsOneVectorIsNotANumberEither) {
  using torch::nn::utils::parameters_to_vector;
  const std::vector<torch::Tensor> good = {torch::ones({2, 2}), torch::ones({3})};
  for (const std::size_t where : {0, 1}) {
    const std::vector<torch::Tensor> bad = {torch::ones({2, 2}), torch::full({3}, 7.F)};
    bad[where].view(-1)[1] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan((parameters_to_vector(bad) - parameters_to_vector(good)).abs().max().item<double>()));
  }
}

}  // namespace
}  // namespace trireme::test
