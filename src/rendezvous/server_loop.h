// The thread of a rendezvous server: its connections (server.cpp), and what ranks and strangers say (server_ranks.cpp).
#pragma once

#include "rendezvous/channel.h"
#include "rendezvous/meeting.h"
#include "rendezvous/notice.h"
#include "rendezvous/server.h"
#include "rendezvous/socket.h"
#include "rendezvous/wire.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <future>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace trireme::rendezvous {

class Server::Loop {
 public:
  Loop(const std::string& host, std::uint16_t port, int ranks, Meetings meetings, const std::string& name,
       const Guard& guard);

  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::uint16_t port() const { return port_; }
  std::vector<int> culprits() {
    const std::lock_guard lock(mutex_);
    return culprits_;
  }
  int strangers() const { return strangers_count_; }

  void tell_ended(int rank, const std::string& who, const std::string& how, Ran ran);
  std::vector<int> awaited();

 private:
  struct Session;

  struct Connection {
    std::uint64_t id;  // never used again, unlike descriptors
    Channel channel;
    bool watched_for_room = false;
    std::string from{};   // its address
    std::string hello{};  // what it said, while it has yet to prove the secret
    std::string challenge{};
    bool dismissed = false;      // nothing more is read from it, and it is dropped when it hangs up or takes too long
    Session* session = nullptr;  // of a rank
    int rank = -1;
    std::string lost{};                                        // how, of a rank that is
    Clock::time_point patience_ends{};                         // of strangers and those that are lost
    std::optional<std::list<Connection*>::iterator> listed{};  // among strangers
  };

  struct Session {
    Meeting meeting;
    std::vector<Connection*> present{};
  };

  /// A rank that is no more: `who` and `how` complete "rank 3 (who) how".
  struct Ended {
    int rank;
    std::string who;
    std::string how;
    Ran ran;
  };

  // Connections (server.cpp).
  void run() noexcept;
  bool done() const { return stop_at_ && (connections_.empty() || Clock::now() >= *stop_at_); }
  void turn();
  int wait_time() const;
  void wake();
  bool watch(int operation, const Descriptor& descriptor, std::uint64_t id, std::uint32_t events) const;
  void watch_for_room(Connection& connection);
  void take_ended();
  void answer_questions();
  void begin_to_stop();
  void accept_some();
  void make_room();
  void list_as_stranger(Connection& connection);
  void unlist(Connection& connection);
  void drop(Connection& connection);
  void dismiss(Connection& connection);
  void turn_away(Connection& connection, const std::string& why);
  void count_stranger(const std::string& what);
  void serve(Connection& connection, std::uint32_t events);
  void hear(Connection& connection);
  void send(Connection& connection, std::string bytes);
  void send_to_all(Session& session, std::string bytes);

  // Ranks and strangers (server_ranks.cpp).
  void handle(Connection& connection, const FrameReader::Frame& message);
  void hear_stranger(Connection& connection, const FrameReader::Frame& message);
  std::string object_to(const Hello& hello) const;
  void hear_proof(Connection& connection, const Digest& proof);
  void admit(Connection& connection, const Hello& hello);
  std::string find_seat(Connection& connection, int rank, const std::string& who);
  void join(Connection& connection, Session& session, int rank, const std::string& who);
  void welcome(Connection& connection);
  void take_blob(const Connection& connection, const std::string& body);
  void refuse(Connection& connection, const Failure& failure);
  void contradict(const Failure& failure);
  void mourn(Connection& connection, const std::string& how);
  void bury(Clock::time_point now);
  void lose(Connection& connection, const std::string& how);
  template <typename Way>
  void part(Connection& connection, Way way);
  void fail_if_one_ended(Session& session);
  void tell_failure(Session& session) {
    {
      const std::lock_guard lock(mutex_);
      if (culprits_.empty()) culprits_ = session.meeting.culprits();
    }
    send_to_all(session, frame(Kind::failure, *session.meeting.failure()));
  }
  std::string missing(const Session& session) const;
  std::vector<int> find_awaited() const;

  static constexpr std::uint64_t kWake = 0;
  static constexpr std::uint64_t kListener = 1;

  const int ranks_;
  const std::size_t most_strangers_;
  const Guard guard_;
  Doorman doorman_;  // the thread's own
  std::atomic<int> strangers_count_ = 0;
  const bool many_;
  const std::string name_;
  Descriptor listener_;
  const std::uint16_t port_;
  Descriptor poll_;
  Descriptor wake_;

  std::atomic<bool> stops_{false};
  std::mutex mutex_;
  std::vector<Ended> told_;
  std::vector<int> culprits_;
  std::vector<std::promise<std::vector<int>>> questions_;  // who is awaited

  // The thread's own.
  std::map<int, Ended> ended_;            // by rank
  std::optional<Failure> contradiction_;  // of ranks that were told different things
  std::uint64_t next_id_ = 2;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::list<Connection*> strangers_;  // those that are no ranks, or no more; who has been here longest comes first
  std::list<Connection*> mourned_;    // ranks that hung up; how they ended may yet be told
  std::string last_stranger_;
  std::vector<std::uint64_t> dropped_;
  std::list<Session> sessions_;  // the oldest first
  std::optional<Clock::time_point> stop_at_;
  std::optional<Clock::time_point> accept_at_;
  std::array<char, std::size_t{256} * 1024> buffer_{};

  std::thread thread_;
};

}  // namespace trireme::rendezvous
