#include "torch/data_parallel.h"

#include "torch/give_up.h"
#include "torch/sync_norm.h"
#include "torch/tensors.h"
#include "trireme/objects.h"

#include <fmt/format.h>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <torch/nn/modules/embedding.h>

namespace trireme::detail {
namespace {

/// One line a tensor, for comparing ranks. `sparse`: the names of those with sparse gradients.
std::vector<std::string> lines_of(const std::vector<NamedTensor>& tensors, const char* kind,
                                  const std::set<std::string>& sparse) {
  std::vector<std::string> lines;
  std::map<const void*, std::string> names;
  for (const NamedTensor& each : tensors) {
    std::string line = fmt::format("{} {} of {}", kind, each.name, describe(each.tensor));
    if (!each.tensor.is_contiguous()) line += fmt::format(", strides {}", fmt::join(each.tensor.strides(), ", "));
    if (!each.tensor.requires_grad()) line += ", without gradient";
    if (sparse.contains(each.name)) line += ", with sparse gradients";
    const auto [found, fresh] = names.emplace(each.tensor.unsafeGetTensorImpl(), each.name);
    if (!fresh) line += fmt::format(", the same as {}", found->second);
    lines.push_back(std::move(line));
  }
  return lines;
}

/// What all ranks have to do alike.
std::string line_of(const DistributedDataParallelOptions& options) {
  const auto buffers = [&] {
    switch (options.broadcast_buffers) {
      case BroadcastBuffers::before_forward: return "before each forward";
      case BroadcastBuffers::at_start: return "at the start";
      default: return "never";
    }
  };
  return fmt::format(
      "options: buckets of {} and {} bytes, {} graph, unused parameters {}, buffers broadcast {}, {} communication "
      "hook",
      options.first_bucket_bytes, options.bucket_bytes, options.static_graph ? "a static" : "no static",
      options.find_unused_parameters ? "found" : "not looked for", buffers(), options.hook ? "a" : "no");
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

// Throws the same on all ranks, since all compare all.
void check_same(Communicator& ranks, const std::vector<std::string>& mine) {
  const std::string text = fmt::format("{}", fmt::join(mine, "\n"));
  // Only ranks that differ need to tell all of it.
  const std::uint64_t hash = std::hash<std::string>()(text);
  std::vector<std::int64_t> ends = {static_cast<std::int64_t>(hash >> 1U), -static_cast<std::int64_t>(hash >> 1U)};
  ranks.allreduce(ends, Op::max);
  if (ends[0] == -ends[1]) return;
  const std::vector<std::string> all = all_gather_object(ranks, text);
  const std::vector<std::string> first = split_lines(all[0]);
  for (int rank = 1; rank < ranks.ranks(); ++rank) {
    const std::vector<std::string> other = split_lines(all[rank]);
    for (std::size_t i = 0; i < std::max(first.size(), other.size()); ++i) {
      const std::string a = i < first.size() ? first[i] : "nothing more";
      const std::string b = i < other.size() ? other[i] : "nothing more";
      if (a == b) continue;
      throw UsageError(fmt::format("ranks have different models: rank 0 has {}, where rank {} has {}", a, rank, b));
    }
  }
}

/// Calls `use` with the name and the options of each table of embeddings in the module.
template <typename Use>
void for_each_embedding(torch::nn::Module& module, Use use) {
  const auto look_at = [&](const torch::nn::Module& each, const std::string& name) {
    if (const auto* embedding = each.as<torch::nn::EmbeddingImpl>()) use(name, embedding->options);
    if (const auto* bag = each.as<torch::nn::EmbeddingBagImpl>()) use(name, bag->options);
  };
  look_at(module, "");
  for (const auto& child : module.named_modules({}, /*include_self=*/false)) look_at(*child.value(), child.key());
}

std::set<std::string> sparse_names(torch::nn::Module& module, const DistributedDataParallelOptions& options) {
  std::set<std::string> names(options.sparse_parameters.begin(), options.sparse_parameters.end());
  for_each_embedding(module, [&](const std::string& name, const auto& embedding) {
    if (embedding.sparse()) names.insert(name.empty() ? "weight" : name + ".weight");
  });
  return names;
}

/// Why the module can't be the same on all ranks; empty: it can.
std::string what_drifts_apart(torch::nn::Module& module) {
  std::string reason;
  for_each_embedding(module, [&](const std::string& name, const auto& embedding) {
    if (!embedding.max_norm() || !reason.empty()) return;
    reason = fmt::format(
        "{} has max_norm: its forward shortens the rows that it looks up, which are others on each rank, and the "
        "models would drift apart. Construct it without max_norm, and shorten all rows after each step instead "
        "(weight.renorm_(norm_type, 0, max_norm), without gradients)",
        name.empty() ? "the embedding" : fmt::format("embedding {}", name));
  });
  return reason;
}

}  // namespace

DataParallel::Impl::Impl(torch::nn::Module& module, Communicator world, const DistributedDataParallelOptions& options)
    : module_(module), ranks_(world.split(0, world.rank())), options_(options) {
  for (const auto& each : module.named_parameters()) parameters_.push_back({each.key(), each.value()});
  for (const auto& each : module.named_buffers()) buffers_.push_back({each.key(), each.value()});
  // What is wrong is told by all ranks, or the others would wait for this one.
  const std::vector<std::string> wrong = all_gather_object(ranks_, what_is_wrong());
  for (int rank = 0; rank < ranks_.ranks(); ++rank) {
    if (!wrong[rank].empty()) throw UsageError(fmt::format("rank {}'s module can't be wrapped: {}", rank, wrong[rank]));
  }
  const std::set<std::string> sparse = sparse_names(module, options);
  std::vector<std::string> lines = lines_of(parameters_, "parameter", sparse);
  for (std::string& line : lines_of(buffers_, "buffer", {})) lines.push_back(std::move(line));
  lines.push_back(line_of(options));
  check_same(ranks_, lines);
  broadcast_state(0);

  std::vector<ReducedParameter> reduced;
  std::set<const void*> seen;  // modules may share a parameter
  for (const NamedTensor& each : parameters_) {
    if (!seen.insert(each.tensor.unsafeGetTensorImpl()).second) continue;
    if (each.tensor.requires_grad()) {
      reduced.push_back({each.name, each.tensor, sparse.contains(each.name)});
    } else {
      frozen_.push_back(each);
    }
  }
  reducer_ = std::make_unique<Reducer>(std::move(reduced), ranks_, options);
  for (const SyncedLayer& layer : synced_layers(module)) layer.norm->note_in(reducer_->exchanges());
}

std::string DataParallel::Impl::what_is_wrong() const {
  if (options_.first_bucket_bytes == 0 || options_.bucket_bytes == 0) return "a bucket of 0 bytes holds nothing";
  bool any = false;
  for (const auto* tensors : {&parameters_, &buffers_}) {
    for (const NamedTensor& each : *tensors) {
      if (!each.tensor.device().is_cpu()) {
        return fmt::format("{} {} of {} is on device {}, which is not supported yet: move the module to the CPU",
                           tensors == &parameters_ ? "parameter" : "buffer", each.name, describe(each.tensor),
                           each.tensor.device().str());
      }
    }
  }
  std::set<std::string> names;
  for (const NamedTensor& each : parameters_) {
    names.insert(each.name);
    if (!each.tensor.requires_grad()) continue;
    any = true;
    if (!reducible(each.tensor.scalar_type())) {
      return fmt::format("parameter {} of {} can't be reduced; there are float32, float64, float16 and bfloat16",
                         each.name, describe(each.tensor));
    }
  }
  if (!any) return "the module has no parameter that needs a gradient: there is nothing to train in parallel";
  for (const std::string& name : options_.sparse_parameters) {
    if (!names.contains(name)) return fmt::format("sparse_parameters names {}, which the module does not have", name);
  }
  return what_drifts_apart(module_);
}

void DataParallel::Impl::broadcast_state(int root) {
  const at::NoGradGuard no_grad;
  for (const auto* tensors : {&parameters_, &buffers_}) {
    if (tensors == &buffers_ && options_.broadcast_buffers == BroadcastBuffers::never) continue;
    for (const NamedTensor& each : *tensors) {
      if (each.tensor.is_contiguous()) {
        ranks_.broadcast(bytes_of_tensor(each.tensor), root);
      } else {
        const at::Tensor whole = each.tensor.contiguous();
        ranks_.broadcast(bytes_of_tensor(whole), root);
        each.tensor.copy_(whole);
      }
    }
  }
}

// As one message, since most are small.
void DataParallel::Impl::broadcast_buffers(int root) {
  const at::NoGradGuard no_grad;
  // Each where any element may lie.
  const auto room_for = [](std::size_t size) {
    constexpr std::size_t kAligned = alignof(std::max_align_t);
    return (size + kAligned - 1) / kAligned * kAligned;
  };
  std::size_t bytes = 0;
  for (const NamedTensor& each : buffers_) bytes += room_for(bytes_of_tensor(each.tensor).elements);
  packed_.resize(bytes);
  const auto each_place = [&](const auto& call) {
    std::size_t at = 0;
    for (const NamedTensor& each : buffers_) {
      const std::size_t size = bytes_of_tensor(each.tensor).elements;
      if (size > 0) call(each.tensor, packed_.data() + at, size);
      at += room_for(size);
    }
  };
  if (ranks_.rank() == root) {
    each_place([](const at::Tensor& tensor, std::uint8_t* place, std::size_t size) {
      std::memcpy(place, tensor.contiguous().data_ptr(), size);
    });
  }
  ranks_.broadcast(packed_, root);
  if (ranks_.rank() == root) return;
  each_place([](const at::Tensor& tensor, std::uint8_t* place, std::size_t /*size*/) {
    // As another variable, so that the tensor's version stays: a forward before may have saved it for its backward, as
    // batch norm does with statistics that its backward does not look at.
    tensor.variable_data().copy_(at::from_blob(place, tensor.sizes(), tensor.options().requires_grad(false)));
  });
}

// Gradients of what is added or unfrozen later would not be averaged, and nobody would notice.
void DataParallel::Impl::check_parameters() const {
  const std::vector<at::Tensor> now = module_.parameters();
  for (std::size_t i = 0; i < std::max(now.size(), parameters_.size()); ++i) {
    const bool same = i < now.size() && i < parameters_.size() && now[i].is_same(parameters_[i].tensor);
    if (same) continue;
    for (const auto& each : module_.named_parameters()) {
      const bool known = std::any_of(parameters_.begin(), parameters_.end(),
                                     [&](const NamedTensor& old) { return old.tensor.is_same(each.value()); });
      if (!known) {
        give_up(ranks_,
                fmt::format("parameter {} of {} was added to the module, or replaced, after it was wrapped: its "
                            "gradients would not be averaged. Wrap the module again",
                            each.key(), describe(each.value())));
      }
    }
    give_up(ranks_, "a parameter was taken out of the module after it was wrapped. Wrap the module again");
  }
  for (const NamedTensor& each : frozen_) {
    if (!each.tensor.requires_grad()) continue;
    give_up(ranks_, fmt::format("parameter {} of {} needs a gradient, but did not when it was wrapped: it would not be "
                                "averaged. Wrap the module again",
                                each.name, describe(each.tensor)));
  }
}

// The same of buffers: what rank 0 has of a new one would not come.
void DataParallel::Impl::check_buffers() const {
  if (options_.broadcast_buffers == BroadcastBuffers::never) return;
  const std::vector<at::Tensor> now = module_.buffers();
  const bool same = std::equal(now.begin(), now.end(), buffers_.begin(), buffers_.end(),
                               [](const at::Tensor& a, const NamedTensor& b) { return a.is_same(b.tensor); });
  if (same) return;
  for (const auto& each : module_.named_buffers()) {
    const bool known = std::any_of(buffers_.begin(), buffers_.end(),
                                   [&](const NamedTensor& old) { return old.tensor.is_same(each.value()); });
    if (!known) {
      give_up(ranks_,
              fmt::format("buffer {} of {} was added to the module, or replaced, after it was wrapped: it would "
                          "not be broadcast. Wrap the module again",
                          each.key(), describe(each.value())));
    }
  }
  give_up(ranks_, "a buffer was taken out of the module after it was wrapped. Wrap the module again");
}

void DataParallel::Impl::before_forward() {
  check_parameters();
  check_buffers();
  reducer_->before_forward();
  const bool wanted = options_.broadcast_buffers == BroadcastBuffers::before_forward && reducer_->syncs() &&
                      at::GradMode::is_enabled() && module_.is_training();
  if (!wanted || buffers_.empty() || ranks_.ranks() == 1) return;
  const NotedExchange noted(reducer_->exchanges());
  broadcast_buffers(notices_ ? notices_->announce_and_wait(Announced::buffers).last_at_work : 0);
}

DataParallel::DataParallel(torch::nn::Module& module, Communicator world, const DistributedDataParallelOptions& options)
    : impl_(std::make_unique<Impl>(module, std::move(world), options)) {}

DataParallel::~DataParallel() = default;

void DataParallel::before_forward() { impl_->before_forward(); }
void DataParallel::after_forward(const std::vector<torch::Tensor*>& results, bool all_known) {
  impl_->reducer().after_forward(results, all_known);
}
void DataParallel::set_sync(bool sync) { impl_->reducer().set_sync(sync); }
bool DataParallel::syncs() const { return impl_->reducer().syncs(); }
torch::Tensor DataParallel::weigh(const torch::Tensor& loss, double samples) {
  return impl_->reducer().weigh(loss, samples);
}
const StepTimes& DataParallel::times() const { return impl_->reducer().times(); }
std::vector<GradientBucket> DataParallel::buckets() const { return impl_->reducer().buckets(); }

}  // namespace trireme::detail
