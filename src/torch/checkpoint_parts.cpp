#include "torch/checkpoint_parts.h"

#include "torch/checkpoint_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <c10/util/Type.h>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <sstream>
#include <torch/csrc/autograd/grad_mode.h>
#include <torch/serialize/input-archive.h>
#include <torch/serialize/output-archive.h>
#include <typeinfo>

namespace trireme::detail {
namespace {

void put(std::string& bytes, std::string_view text) {
  const auto length = static_cast<std::uint64_t>(text.size());
  bytes.append(reinterpret_cast<const char*>(&length), sizeof(length));
  bytes += text;
}

/// The next string; the view moves past it.
std::string_view take(std::string_view& bytes) {
  std::uint64_t length = 0;
  if (bytes.size() < sizeof(length)) throw Damaged("one of its sections ends too early");
  std::memcpy(&length, bytes.data(), sizeof(length));
  bytes.remove_prefix(sizeof(length));
  if (length > bytes.size()) throw Damaged("one of its sections ends too early");
  const std::string_view text = bytes.substr(0, length);
  bytes.remove_prefix(length);
  return text;
}

/// As it stands in files: checkpoints are compared by it.
std::string kind_of(const torch::Tensor& tensor) {
  return fmt::format("{} [{}]", c10::toString(tensor.scalar_type()), fmt::join(tensor.sizes(), ", "));
}

/// Parameters, then buffers: all that is in a model's state.
template <typename Use>
void for_each_tensor(const torch::nn::Module& model, Use use) {
  for (const auto& item : model.named_parameters()) use("parameter " + item.key(), item.value());
  for (const auto& item : model.named_buffers()) use("buffer " + item.key(), item.value());
}

/// Whether a tensor has a gradient, as it stands in files.
std::string_view gradient_of(const torch::Tensor& tensor) {
  if (!tensor.grad().defined()) return "none";
  return tensor.grad().is_sparse() ? "sparse" : "dense";
}

/// Zeros, which optimisers go by: momentum and weight decay move a parameter whose gradient is zero, but none without.
void clear_gradient(const torch::Tensor& tensor, std::string_view kind) {
  if (kind != gradient_of(tensor)) {
    torch::Tensor& gradient = tensor.mutable_grad();
    if (kind == "none") {
      gradient = torch::Tensor();
    } else if (kind == "sparse") {
      gradient = torch::zeros(tensor.sizes(), tensor.options().requires_grad(false).layout(at::kSparse));
    } else {
      gradient = torch::zeros_like(tensor, tensor.options().requires_grad(false));
    }
  } else if (kind != "none") {
    tensor.mutable_grad().zero_();  // where it is: in a bucket, perhaps
  }
}

template <typename Saved>
std::string archived(const Saved& saved) {
  torch::serialize::OutputArchive archive;
  saved.save(archive);
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

torch::serialize::InputArchive archive_of(std::string_view bytes) {
  torch::serialize::InputArchive archive;
  archive.load_from(bytes.data(), bytes.size());
  return archive;
}

/// What an optimiser's state belongs to, a line for each thing.
std::vector<std::string> outline(const torch::optim::Optimizer& optimizer) {
  std::vector<std::string> lines = {"the kind: " + c10::demangle(typeid(optimizer).name())};
  int group = 0;
  for (const auto& each : optimizer.param_groups()) {
    int index = 0;
    for (const torch::Tensor& parameter : each.params()) {
      lines.push_back(fmt::format("parameter {} of group {}: {}", index++, group, kind_of(parameter)));
    }
    lines.push_back(fmt::format("the length of group {}: {} parameters", group++, index));
  }
  return lines;
}

}  // namespace

std::string save_model(const torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  std::string bytes;
  for_each_tensor(model, [&](const std::string& name, const torch::Tensor& tensor) {
    if (tensor.layout() != at::kStrided || !tensor.is_cpu()) {
      throw UsageError(fmt::format("{} can't be saved: only dense tensors on the CPU can be yet", name));
    }
    const torch::Tensor dense = tensor.contiguous();
    put(bytes, name);
    put(bytes, kind_of(dense));
    put(bytes, {static_cast<const char*>(dense.data_ptr()), dense.nbytes()});
    put(bytes, gradient_of(tensor));
  });
  return bytes;
}

void check_model(std::string_view bytes, const torch::nn::Module& model) {
  constexpr std::string_view kAdvice = "load it with the model that it was saved with, or use another folder";
  for_each_tensor(model, [&](const std::string& name, const torch::Tensor& tensor) {
    const std::string here = kind_of(tensor);
    if (bytes.empty()) {
      throw UsageError(
          fmt::format("it is of another model: {} of this one, {}, is not in it; {}", name, here, kAdvice));
    }
    const std::string_view saved_name = take(bytes);
    const std::string_view saved = take(bytes);
    const std::size_t length = take(bytes).size();
    take(bytes);
    if (saved_name != name) {
      throw UsageError(fmt::format("it is of another model: where this one has {}, {}, it has {}, {}; {}", name, here,
                                   saved_name, saved, kAdvice));
    }
    if (saved != here) {
      throw UsageError(
          fmt::format("it is of another model: {} is {} there, but {} in this one; {}", name, saved, here, kAdvice));
    }
    if (length != tensor.nbytes()) throw Damaged(fmt::format("{} has {} bytes", name, length));
  });
  if (!bytes.empty()) {
    const std::string_view name = take(bytes);
    throw UsageError(fmt::format("it is of another model: {}, {}, is not in this one; {}", name, take(bytes), kAdvice));
  }
}

void load_model(std::string_view bytes, torch::nn::Module& model) {
  const torch::NoGradGuard no_grad;
  for_each_tensor(model, [&](const std::string&, torch::Tensor tensor) {
    take(bytes);
    take(bytes);
    const std::string_view data = take(bytes);
    // Copied, so that whatever else refers to the tensor's memory still does.
    torch::Tensor read = torch::empty(tensor.sizes(), tensor.options());
    std::memcpy(read.data_ptr(), data.data(), data.size());
    tensor.copy_(read);
    // What is frozen now has none, or weight decay and momentum would move it.
    const std::string_view gradient = take(bytes);
    clear_gradient(tensor, tensor.requires_grad() ? gradient : "none");
  });
}

std::string save_optimizer(const torch::optim::Optimizer& optimizer) {
  std::string bytes;
  put(bytes, join_strings(outline(optimizer)));
  put(bytes, archived(optimizer));
  return bytes;
}

void check_optimizer(std::string_view bytes, const torch::optim::Optimizer& optimizer) {
  const std::vector<std::string> saved = split_strings(take(bytes));
  const std::vector<std::string> here = outline(optimizer);
  for (std::size_t i = 0; i < std::max(saved.size(), here.size()); ++i) {
    const std::string there = i < saved.size() ? saved[i] : "nothing more";
    const std::string ours = i < here.size() ? here[i] : "nothing more";
    if (there == ours) continue;
    throw UsageError(
        fmt::format("it is of another optimiser: it has {}, but this one has {}; load it with the optimiser "
                    "that it was saved with, or use another folder",
                    there, ours));
  }
}

void load_optimizer(std::string_view bytes, torch::optim::Optimizer& optimizer) {
  take(bytes);
  optimizer.state().clear();  // what load() does not mention would stay otherwise
  torch::serialize::InputArchive archive = archive_of(take(bytes));
  optimizer.load(archive);
}

std::string save_sampler(const DistributedSampler& sampler) { return archived(sampler); }

void check_sampler(std::string_view bytes, const DistributedSampler& sampler) {
  torch::serialize::InputArchive archive = archive_of(bytes);
  sampler.check(archive);
}

void load_sampler(std::string_view bytes, DistributedSampler& sampler) {
  torch::serialize::InputArchive archive = archive_of(bytes);
  sampler.load(archive);
}

std::string random_state() {
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  const torch::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.data_ptr()), state.nbytes()};
}

void set_random_state(std::string_view state) {
  torch::Tensor bytes = torch::empty({static_cast<std::int64_t>(state.size())}, at::kByte);
  std::memcpy(bytes.data_ptr(), state.data(), state.size());
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(bytes);
}

std::string join_strings(const std::vector<std::string>& strings) {
  std::string bytes;
  for (const std::string& string : strings) put(bytes, string);
  return bytes;
}

std::vector<std::string> split_strings(std::string_view bytes) {
  std::vector<std::string> strings;
  while (!bytes.empty()) strings.emplace_back(take(bytes));
  return strings;
}

}  // namespace trireme::detail
