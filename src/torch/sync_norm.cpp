// Forward: y = (x - mean) / sqrt(var + eps) * weight + bias, where mean and var are of n values on all ranks, and
// var = squares / (n - correction). Backward, with every sum over all ranks:
//   dx = weight / sqrt(var + eps)
//        * (dy - sum(dy) / n - (x - mean) / (var + eps) * sum(dy (x - mean)) / (n - correction))
// Ranks' moments are put together by Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances", 1979.
#include "torch/sync_norm.h"

#include "torch/give_up.h"
#include "torch/notices.h"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <span>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/custom_class.h>
#include <utility>

namespace trireme::detail {
namespace {

using torch::Tensor;

std::span<double> values_of(const Tensor& tensor) {
  return {tensor.data_ptr<double>(), static_cast<std::size_t>(tensor.numel())};
}

// A value a channel, to be used with inputs.
Tensor spread(const Tensor& channels, const Tensor& input) {
  std::vector<std::int64_t> shape(static_cast<std::size_t>(input.dim()), 1);
  shape[1] = channels.numel();
  return channels.view(shape);
}

// The sum of each channel.
Tensor channel_sums(const Tensor& values) {
  std::vector<std::int64_t> dims = {0};
  for (std::int64_t dim = 2; dim < values.dim(); ++dim) dims.push_back(dim);
  return values.sum(dims);
}

Moments moments_of(const Tensor& input) {
  const Tensor values = input.to(torch::kDouble);
  const std::int64_t features = input.size(1);
  const double count = static_cast<double>(input.numel()) / static_cast<double>(features);
  if (count == 0) {
    const Tensor zeros = torch::zeros({features}, torch::kDouble);
    return {0, zeros, zeros};
  }
  Tensor mean = channel_sums(values) / count;
  Tensor squares = channel_sums((values - spread(mean, values)).square_());
  return {count, std::move(mean), std::move(squares)};
}

// What backward keeps beside tensors.
struct Kept : torch::CustomClassHolder {
  std::shared_ptr<SyncNorm> norm;
  double count = 0;
};

struct Normalise : torch::autograd::Function<Normalise> {
  // Weight and bias are optional because LibTorch 1.13 can't have an undefined tensor as an argument.
  using OptionalTensor = c10::optional<Tensor>;
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& input, const OptionalTensor& gain,
                        const OptionalTensor& shift, const std::shared_ptr<SyncNorm>& norm, const Running& running,
                        double eps) {
    const Tensor weight = gain.value_or(Tensor()), bias = shift.value_or(Tensor());
    const Moments mine = moments_of(input);
    norm->announce(Announced::statistics);
    const Moments joined = norm->join(mine, running);
    const Tensor inverse = joined.squares.div(joined.count - norm->correction()).add_(eps).rsqrt_();

    auto kept = c10::make_intrusive<Kept>();
    kept->norm = norm;
    kept->count = joined.count;
    context->saved_data["kept"] = c10::IValue::make_capsule(std::move(kept));
    context->save_for_backward({input, weight, joined.mean, inverse});

    const torch::Dtype exact = precision(input);
    const Tensor scale = weight.defined() ? inverse * weight : inverse;
    Tensor output = input.to(exact).sub(spread(joined.mean, input).to(exact)).mul_(spread(scale, input).to(exact));
    if (bias.defined()) output.add_(spread(bias, input).to(exact));
    return output.to(input.scalar_type());
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list& gradients) {
    const auto kept = c10::static_intrusive_pointer_cast<Kept>(context->saved_data["kept"].toCapsule());
    if (torch::GradMode::is_enabled()) {
      kept->norm->refuse("backward of a synchronised batch norm with create_graph: it can't be differentiated twice");
    }
    const auto saved = context->get_saved_variables();
    const Tensor &input = saved[0], &weight = saved[1], &mean = saved[2], &inverse = saved[3];
    const std::int64_t features = mean.numel();

    const Tensor dy = gradients[0].to(torch::kDouble);
    const Tensor own =
        torch::cat({channel_sums(dy), channel_sums((input.to(torch::kDouble) - spread(mean, input)).mul_(dy))});
    kept->norm->announce(Announced::sums);
    const Tensor sums = kept->norm->add_up(own);

    const Tensor straight = sums.narrow(0, 0, features) / kept->count;
    const Tensor slope =
        sums.narrow(0, features, features) * inverse.square() / (kept->count - kept->norm->correction());
    const Tensor scale = weight.defined() ? inverse * weight : inverse;
    const torch::Dtype exact = precision(input);
    const auto channels = [&](const Tensor& values) { return spread(values, input).to(exact); };
    Tensor dx = input.to(exact).sub(channels(mean)).mul_(channels(-slope));
    dx.add_(gradients[0]).sub_(channels(straight)).mul_(channels(scale));

    Tensor dweight, dbias;
    if (weight.defined()) {
      dweight = own.narrow(0, features, features).mul(inverse).to(weight.scalar_type());
      dbias = own.narrow(0, 0, features).to(weight.scalar_type());
    }
    return {dx.to(input.scalar_type()), dweight, dbias, Tensor(), Tensor(), Tensor()};
  }

  // What values are normalised in: halves would lose what the statistics have.
  static torch::Dtype precision(const Tensor& input) {
    return input.scalar_type() == torch::kDouble ? torch::kDouble : torch::kFloat;
  }
};

}  // namespace

SyncNorm::SyncNorm(std::optional<Communicator> ranks, std::int64_t features, int correction, const std::string& name)
    : SyncNorm(std::move(ranks), features, correction, std::make_shared<const std::vector<std::string>>(1, name), 0) {}

SyncNorm::SyncNorm(std::optional<Communicator> ranks, std::int64_t features, int correction, Names names,
                   std::size_t number)
    : ranks_(std::move(ranks)),
      features_(features),
      correction_(correction),
      names_(std::move(names)),
      number_(number) {
  if (features < 1) throw UsageError(fmt::format("{}: {} features, but there must be one at least", name(), features));
  if (correction != 0 && correction != 1) {
    throw UsageError(fmt::format("{}: a correction of {}, but it is 0 or 1", name(), correction));
  }
}

Tensor SyncNorm::forward(const Tensor& input, const Tensor& weight, const Tensor& bias, const Running& running,
                         double eps) {
  const std::string wrong = what_is_wrong_with(input);
  if (!wrong.empty()) refuse(wrong);
  return Normalise::apply(input, Normalise::OptionalTensor(weight), Normalise::OptionalTensor(bias), shared_from_this(),
                          running, eps);
}

std::string SyncNorm::what_is_wrong_with(const Tensor& input) const {
  const auto wrong = [this](const std::string& what) {
    return fmt::format("{}: expected an input of [N, {}, ...] on the CPU, got {}", name(), features_, what);
  };
  if (!input.defined()) return wrong("an undefined tensor");
  std::string shape;
  for (const std::int64_t size : input.sizes()) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", size);
  if (input.dim() < 2 || input.size(1) != features_) return wrong(fmt::format("[{}]", shape));
  if (!input.is_floating_point()) return wrong(std::string("one of ") + c10::toString(input.scalar_type()));
  if (!input.device().is_cpu())
    return wrong(fmt::format("one on {}: other devices are not supported yet", input.device().str()));
  return {};
}

void SyncNorm::refuse(const std::string& why) const {
  if (ranks_) give_up(*ranks_, why);
  throw UsageError(why);
}

void SyncNorm::announce_to(std::shared_ptr<Notices> notices, std::int64_t index) {
  notices_ = std::move(notices);
  index_ = index;
}

// All ranks have the same numbers, so all throw the same.
void SyncNorm::check_same(const std::vector<double>& numbers, const char* what) const {
  const auto other = std::ranges::adjacent_find(numbers, std::not_equal_to<>());
  if (other == numbers.end()) return;
  const auto rank = other - numbers.begin();
  const auto name_of = [&](double number) {
    const auto at = static_cast<std::size_t>(number);
    return at < names_->size() ? (*names_)[at] : fmt::format("batch norm {}", at);
  };
  throw UsageError(fmt::format(
      "ranks run different batch norms: rank {} is in the {} of {}, rank {} in that of {}. Their statistics "
      "are those of all ranks: all have to run the same ones, in the same order",
      rank, what, name_of(other[0]), rank + 1, name_of(other[1])));
}

// Plain loops: LibTorch's kernels are other ones on other processors, and ranks must get the same bits.
Moments SyncNorm::join(const Moments& mine, const Running& running) {
  const auto width = static_cast<std::size_t>(2 + 2 * features_);
  const Tensor packed =
      torch::cat({torch::tensor({static_cast<double>(number_), mine.count}, torch::kDouble), mine.mean, mine.squares});
  std::vector<double> all(width * static_cast<std::size_t>(ranks_ ? ranks_->ranks() : 1));
  if (ranks_) {
    const NotedExchange noted(exchanges_.lock());
    ranks_->allgather(values_of(packed), all);
  } else {
    std::ranges::copy(values_of(packed), all.begin());
  }

  std::vector<double> numbers;
  for (std::size_t first = 0; first < all.size(); first += width) numbers.push_back(all[first]);
  check_same(numbers, "forward");

  Moments joined{0, torch::zeros({features_}, torch::kDouble), torch::zeros({features_}, torch::kDouble)};
  const std::span<double> means = values_of(joined.mean), squares = values_of(joined.squares);
  for (std::size_t first = 0; first < all.size(); first += width) {
    const double count = all[first + 1];
    const double* const others_means = &all[first + 2];
    const double* const others_squares = others_means + means.size();
    if (count == 0) continue;
    const double total = joined.count + count;
    for (std::size_t channel = 0; channel < means.size(); ++channel) {
      const double difference = others_means[channel] - means[channel];
      means[channel] += difference * (count / total);
      squares[channel] += others_squares[channel] + difference * difference * (joined.count * count / total);
    }
    joined.count = total;
  }
  if (joined.count < 2) {
    throw UsageError(
        fmt::format("{}: expected more than 1 value per channel when training, got {} on {} ranks together", name(),
                    joined.count, ranks_ ? ranks_->ranks() : 1));
  }

  if (running.mean.defined()) {
    const torch::NoGradGuard guard;
    const auto follow = [&](const Tensor& tracked, const Tensor& batch) {
      tracked.mul_(1 - running.factor).add_(batch.mul(running.factor).to(tracked.scalar_type()));
    };
    follow(running.mean, joined.mean);
    follow(running.var, joined.squares / (joined.count - 1));
    if (running.batches.defined()) running.batches.add_(1);
  }
  return joined;
}

// The layer's number and its square go along: only if it is the same on all P ranks, P times the sum of squares is the
// square of the sum.
Tensor SyncNorm::add_up(const Tensor& mine) {
  if (!ranks_) return mine;
  const auto number = static_cast<double>(number_);
  const Tensor packed = torch::cat({mine, torch::tensor({number, number * number}, torch::kDouble)});
  {
    const NotedExchange noted(exchanges_.lock());
    ranks_->allreduce(values_of(packed));
  }
  const double* const added = packed.data_ptr<double>() + mine.numel();
  if (ranks_->ranks() * added[1] != added[0] * added[0]) {
    std::vector<double> numbers(static_cast<std::size_t>(ranks_->ranks()));
    ranks_->allgather(std::span(&number, 1), numbers);
    check_same(numbers, "backward");
  }
  return packed.narrow(0, 0, mine.numel());
}

void SyncNorm::announce(Announced what) {
  if (notices_) notices_->announce(what, index_);
}

void SyncNorm::shadow_statistics(const Running& running) {
  const Tensor zeros = torch::zeros({features_}, torch::kDouble);
  join({0, zeros, zeros}, running);
}

void SyncNorm::shadow_sums() { add_up(torch::zeros({2 * features_}, torch::kDouble)); }

}  // namespace trireme::detail
