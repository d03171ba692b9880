#include "communicator/cluster.h"

#include "communicator/start.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

namespace trireme::test {
namespace {

/// Where the threads tell each other what ranks tell each other at the rendezvous.
class Table {
 public:
  explicit Table(int ranks) : laid_(ranks), given_(ranks) {}

  std::vector<std::string> exchange(int rank, const std::string& mine) {
    std::unique_lock lock(mutex_);
    laid_[rank] = mine;
    const int round = round_;
    if (++count_ == static_cast<int>(laid_.size())) {
      given_ = laid_;
      count_ = 0;
      ++round_;
      all_.notify_all();
    }
    all_.wait(lock, [&] { return round_ != round || cause_; });
    if (round_ == round) throw Error("another rank has left the table");
    return given_;
  }

  /// A rank will not come again, for this reason: whoever waits for it does so in vain.
  void leave(const std::exception_ptr& cause) {
    const std::lock_guard lock(mutex_);
    if (!cause_) cause_ = cause;
    all_.notify_all();
  }

  /// Why the first rank left.
  const std::exception_ptr& cause() const { return cause_; }

 private:
  std::mutex mutex_;
  std::condition_variable all_;
  std::vector<std::string> laid_, given_;
  int count_ = 0;
  int round_ = 0;
  std::exception_ptr cause_;
};

int host_of(Way way, int rank, int ranks) {
  // Of an odd number, sometimes the first host has one more, sometimes the last.
  if (way == Way::two_hosts) return rank < (ranks % 4 == 3 ? ranks + 1 : ranks) / 2 ? 0 : 1;
  return way == Way::interleaved ? rank % 2 : 0;
}

/// Ranks of another host than `rank`'s announce shared memory that can't be found.
void hide_other_hosts(Way way, int rank, std::vector<std::string>& told) {
  const int ranks = static_cast<int>(told.size());
  for (int peer = 0; peer < ranks; ++peer) {
    const bool near = host_of(way, peer, ranks) == host_of(way, rank, ranks);
    if (!near && told[peer].starts_with("trireme-")) told[peer] = "trireme-elsewhere 0";
  }
}

std::string describe(const std::exception_ptr& thrown) {
  if (!thrown) return "";
  try {
    std::rethrow_exception(thrown);
  } catch (const UsageError& error) {
    return std::string("UsageError: ") + error.what();
  } catch (const PeerError& error) {
    return std::string("PeerError: ") + error.what();
  } catch (const TimeoutError& error) {
    return std::string("TimeoutError: ") + error.what();
  } catch (const ProtocolError& error) {
    return std::string("ProtocolError: ") + error.what();
  } catch (const SystemError& error) {
    return std::string("SystemError: ") + error.what();
  } catch (const std::exception& error) {
    return std::string("exception: ") + error.what();
  }
}

}  // namespace

std::string to_string(Way way) {
  switch (way) {
    case Way::inproc: return "inproc";
    case Way::shm: return "shm";
    case Way::tcp: return "tcp";
    case Way::two_hosts: return "two_hosts";
    default: return "interleaved";
  }
}

void PrintTo(Way way, std::ostream* out) { *out << to_string(way); }

Cluster::Cluster(Way way, int ranks, std::chrono::milliseconds patience, const Faults& faults) : dropped_(ranks) {
  InitOptions options;
  options.patience = patience;
  if (way == Way::inproc) {
    communicators_ = threads_world(ranks, options);
    return;
  }
  options.transport = way == Way::shm ? "shm" : way == Way::tcp ? "tcp" : "auto";
  Table table(ranks);
  std::vector<std::optional<Communicator>> joined(ranks);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      Joining joining{.rank = rank, .ranks = ranks, .exchange = {}, .board = Board::inherited(ranks)};
      if (faults) joining.faults = faults(rank);
      joining.exchange = [&, rank](const std::string& mine) {
        std::vector<std::string> told = table.exchange(rank, mine);
        hide_other_hosts(way, rank, told);
        return told;
      };
      try {
        joined[rank] = join(joining, options);
      } catch (...) {
        table.leave(std::current_exception());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (table.cause()) std::rethrow_exception(table.cause());
  for (std::optional<Communicator>& one : joined) communicators_.push_back(std::move(*one));
}

std::vector<std::string> Cluster::outcomes(const std::function<void(Communicator&)>& work) {
  std::vector<std::exception_ptr> thrown(communicators_.size());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks(); ++rank) {
    if (dropped_[rank]) continue;
    threads.emplace_back([&, rank] {
      try {
        work(communicators_[rank]);
      } catch (...) {
        thrown[rank] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> texts;
  texts.reserve(thrown.size());
  for (const std::exception_ptr& error : thrown) texts.push_back(describe(error));
  return texts;
}

void Cluster::run(const std::function<void(Communicator&)>& work) {
  const std::vector<std::string> thrown = outcomes(work);
  for (std::size_t rank = 0; rank < thrown.size(); ++rank) {
    EXPECT_EQ(thrown[rank], "") << "rank " << rank << " of " << thrown.size();
  }
}

void Cluster::drop(int rank) {
  dropped_[rank] = true;
  communicators_[rank] = Communicator(nullptr);
}

std::string outcome(const std::function<void()>& call) {
  try {
    call();
  } catch (...) {
    return describe(std::current_exception());
  }
  return "";
}

}  // namespace trireme::test
