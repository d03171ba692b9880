#include "cli/cores.h"

#include "trireme/error.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <hwloc.h>
#include <vector>

namespace trireme::cli {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

Bitmap no_cpus() {
  Bitmap bitmap(hwloc_bitmap_alloc());
  if (!bitmap) throw std::bad_alloc();
  return bitmap;
}

}  // namespace

struct Cores::Topology {
  hwloc_topology_t handle = nullptr;
  Bitmap allowed = no_cpus();
  std::vector<Bitmap> cores{};  // the allowed part of each, in the order in which they are near each other

  Topology() {
    if (hwloc_topology_init(&handle) != 0) throw SystemError("hwloc can't look at this machine's processors");
    if (hwloc_topology_load(handle) != 0 || hwloc_get_cpubind(handle, allowed.get(), HWLOC_CPUBIND_THREAD) != 0) {
      hwloc_topology_destroy(handle);
      throw SystemError("hwloc can't tell which processors there are");
    }
    add_all(HWLOC_OBJ_CORE);
    if (cores.empty()) add_all(HWLOC_OBJ_PU);  // Some virtual machines have no cores.
  }
  ~Topology() { hwloc_topology_destroy(handle); }
  Topology(const Topology&) = delete;
  Topology& operator=(const Topology&) = delete;

  void add_all(hwloc_obj_type_t type) {
    const int count = hwloc_get_nbobjs_by_type(handle, type);
    for (int i = 0; i < count; ++i) {
      const hwloc_obj* const core = hwloc_get_obj_by_type(handle, type, static_cast<unsigned>(i));
      Bitmap usable = no_cpus();
      hwloc_bitmap_and(usable.get(), core->cpuset, allowed.get());
      if (hwloc_bitmap_iszero(usable.get()) == 0) cores.push_back(std::move(usable));
    }
  }
};

Cores::Cores() : topology_(std::make_unique<Topology>()) {}

Cores::~Cores() = default;

int Cores::count() const { return std::max(1, static_cast<int>(topology_->cores.size())); }

bool Cores::bind_to_share(int share, int shares) const {
  const auto begin_of = [&](int part) {
    return static_cast<std::size_t>(std::int64_t{part} * static_cast<std::int64_t>(topology_->cores.size()) / shares);
  };
  const Bitmap mine = no_cpus();
  for (std::size_t i = begin_of(share); i < begin_of(share + 1); ++i) {
    hwloc_bitmap_or(mine.get(), mine.get(), topology_->cores[i].get());
  }
  return hwloc_set_cpubind(topology_->handle, mine.get(), HWLOC_CPUBIND_THREAD) == 0;
}

void Cores::unbind() const { hwloc_set_cpubind(topology_->handle, topology_->allowed.get(), HWLOC_CPUBIND_THREAD); }

}  // namespace trireme::cli
