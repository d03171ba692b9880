// The engine: runs the operations of all communicators of this rank over its transports.
//
// At any time at most one thread drives: it makes progress for everybody. A thread that waits for its own operation
// takes the seat if it is free; if not, who sits there does its work too. When a driver leaves and there is still
// something to do, a thread of the engine's own takes over. Nobody drives when nothing is under way, and who waits
// sleeps soon, so an idle communicator uses no CPU. That thread then only opens the door: peers are let in and strangers
// turned away while the program computes.
#pragma once

#include "communicator/board.h"
#include "communicator/operation.h"
#include "transport/host.h"
#include "transport/socket.h"
#include "transport/tcp.h"
#include "transport/transport.h"

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace trireme {

/// A communicator, as the engine sees it.
struct Group {
  std::uint32_t context = 0;
  int rank = 0;
  std::vector<int> members;  ///< by rank: its number in the world
  std::vector<int> rank_of;  ///< by number in the world: its rank; -1: not a member
  std::vector<int> hosts;    ///< by rank: ranks with the same number share memory

  int ranks() const { return static_cast<int>(members.size()); }

  /// The calls that were begun last, for the engine alone.
  struct Past {
    std::uint32_t sequence = 0;
    bool known = false;
    Call call;
  };
  static constexpr std::size_t kRemembered = 256;
  std::vector<Past> past = std::vector<Past>(kRemembered);
};

struct EngineParts {
  int rank = 0;
  int ranks = 1;
  std::vector<std::string> names = {};  ///< by rank, for messages: "rank 2 (host, pid 17)"
  bool crowded = false;                 ///< more ranks on this host than cores for them
  std::shared_ptr<Board> board = {};    ///< always there
};

class Engine final : public transport::Inbox {
 public:
  explicit Engine(EngineParts parts);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// The transports, before the first operation.
  void use(std::unique_ptr<transport::Host> host, std::unique_ptr<transport::Network> tcp);

  /// Runs the operation to its end; throws what went wrong.
  void run(const std::shared_ptr<Operation>& operation);

  /// Begins it; wait() for it later.
  void start(const std::shared_ptr<Operation>& operation);
  void wait(Operation& operation);

  void add(Group& group);
  void remove(Group& group);

  /// Ends all operations, here and on all other ranks, with a UsageError that names this rank and says why.
  void abort(const std::string& why);

  /// Waits for what is under way, and closes. Throws what the last messages show to be wrong, as when ranks disagree.
  void finish();

  /// Says goodbye to all ranks; no operation may be under way.
  void close();

  transport::Arena* arena() { return host_ ? &host_->memory().arena() : nullptr; }
  int rank() const { return parts_.rank; }
  int ranks() const { return parts_.ranks; }
  bool crowded() const { return parts_.crowded; }

  // Inbox.
  std::size_t place(int peer, const transport::Envelope& envelope, std::size_t bytes,
                    std::span<transport::Piece> pieces) override;
  void arrived(int peer, const transport::Envelope& envelope, const transport::Incoming& incoming) override;
  void sent(transport::Outgoing& outgoing, bool answered) override;
  void lost(int peer, const std::string& why) override;
  void garbled(int peer, const std::string& why) override;
  void closed(int peer) override;
  void crowded(int peer) override { make_room(peer); }

 private:
  enum class ControlKind : std::uint8_t { aborts, asks, is_there, is_elsewhere };
  enum class ErrorKind : std::uint8_t { usage, protocol, system, peer, timeout };  ///< the gravest first

  struct Control : transport::Outgoing {
    std::string text;
    transport::Piece piece{};
    bool sent = false;
  };

  /// A node that can go on.
  struct Ready {
    Operation* operation;
    int slot;
    int node;
  };

  /// What another rank asked about and this one has not begun.
  struct Asked {
    int peer;
    std::uint32_t context;
    std::uint32_t sequence;
    Call call;
  };

  /// What a rank did last, as it was told: by itself, or by another rank of its host.
  struct Heard {
    bool answered = false;  ///< by itself
    bool known = false;
    std::optional<Record> last;  ///< by this host's clock; none: it has begun nothing
  };

  // Driving (engine.cpp).
  bool take_seat() { return !driven_.exchange(true); }
  void leave_seat();
  void submit(const std::shared_ptr<Operation>& operation);
  template <typename Work>
  void guarded(const Work& work);
  void drive(const Operation* until);
  void drive_on(const Operation* until);
  bool step();
  void look_at_last();
  bool take_submitted();
  void idle(Clock::time_point since);
  void sleep();
  void tick(Clock::time_point now);
  void check_fates(Clock::time_point now);
  bool owes() const;  ///< for who drives
  void drive_when_needed();
  void wake_helper();
  transport::Greeted greet();
  [[noreturn]] void rethrow(const std::exception_ptr& error);
  Clock::time_point next_tick() const;
  void start_clocks(Clock::time_point now);

  // Running operations (executor.cpp).
  void begin(const std::shared_ptr<Operation>& operation);
  void launch(const std::shared_ptr<Operation>& operation);
  bool is_staged(const Operation& operation) const;
  bool is_short(const Operation& operation) const;
  void record(Operation& operation, bool over = false);
  void prepare(Operation& operation);
  void take_early(Operation& operation);
  void activate(Operation& operation, int slot_number, int segment);
  void deliver(Operation& operation, int peer, const transport::Envelope& envelope, Arrival&& arrival);
  void run_ready();
  void go_on(const Ready& ready);
  void post(Operation& operation, Slot& slot, int node_number);
  void take(Operation& operation, Slot& slot, int node_number);
  void fold(Operation& operation, Slot& slot, int node_number, int sources);
  void end(Operation& operation, int slot_number, int node_number);
  void retire(Operation& operation, int slot_number);
  void complete(Operation& operation);
  void set_aside(Arrival& arrival);
  void make_room(int peer);
  Operation* find(std::uint32_t context, std::uint32_t sequence, int peer);
  bool agrees(const Operation& operation, int peer, const transport::Envelope& envelope);
  transport::Transport& route(int peer);

  // Trouble (trouble.cpp).
  void fail(ErrorKind kind, const std::string& message, const std::vector<int>& blamed = {});
  void spread(const std::string& news);
  static bool is_news(const std::string& text);
  std::vector<int> blamed_by(const std::string& news) const;
  void disagree(std::uint32_t sequence, int peer, const Call& theirs, const Call& mine);
  void shut_down();
  void tell(int peer, ControlKind kind, std::string text);
  void take_control(int peer, const transport::Envelope& envelope, const transport::Incoming& incoming);
  bool needs(const Operation& operation, int peer) const;
  void check_gone(const Operation& operation);
  std::string why_gone(int peer) const;

  // Those that do not come (questions.cpp).
  void ask_others(Operation& operation);
  void take_question(int peer, const transport::Envelope& envelope, const std::string& text);
  bool compare(const Asked& asked);
  bool compare(const Early& early);
  void answer(const Asked& asked);
  void say_where(int peer, int rank);
  void speak_for_neighbours(const Asked& asked);
  void take_where(int peer, const std::string& text);
  static std::string packed(std::uint32_t context, std::uint32_t sequence, const std::uint64_t (&call)[2]);
  void remember(const Operation& operation);
  std::vector<int> missing_in(const Operation& operation) const;
  std::string place_of(const Operation& operation) const;
  void look_at_other_hosts(const Operation& operation);
  std::string waiting_for(const Operation& operation) const;
  std::string what_others_do(const Operation& operation) const;
  std::string did_last(const Operation& operation, int peer) const;

  Group* group_of(std::uint32_t context);  ///< with groups_mutex_ held
  static std::exception_ptr make_error(ErrorKind kind, const std::string& message);

  EngineParts parts_;
  std::unique_ptr<transport::Host> host_;
  std::unique_ptr<transport::Network> tcp_;
  std::vector<transport::Transport*> routes_;  ///< by rank
  std::unique_ptr<transport::Bell> own_bell_;  ///< where no host's memory has one
  transport::Bell* bell_ = nullptr;
  int event_ = -1;

  std::atomic<bool> driven_{false};
  std::atomic<bool> closing_{false};
  std::atomic<int> pending_{0};  ///< operations that are not over
  std::atomic<bool> submitted_{false};
  std::mutex submit_mutex_;
  std::vector<std::shared_ptr<Operation>> submissions_;
  std::optional<std::string> abort_;  ///< why everything is to end

  std::vector<std::shared_ptr<Operation>> active_;
  std::shared_ptr<AsidePool> asides_ = std::make_shared<AsidePool>();
  std::vector<Early> early_;
  std::size_t early_begin_ = 0;  ///< all before it were taken
  std::vector<Ready> ready_;
  bool running_ready_ = false;
  std::vector<Group*> groups_;
  std::mutex groups_mutex_;
  std::deque<std::unique_ptr<Control>> controls_;
  std::vector<Asked> asked_;
  std::vector<std::string> gone_;         ///< by rank: why nothing comes from it any more; empty: it is there
  std::vector<bool> knows_;               ///< by rank: it has said that something went wrong
  std::vector<bool> left_;                ///< by rank: it is gone, but in the orderly way
  std::vector<Clock::time_point> fated_;  ///< by rank: when it became known that its process has ended
  std::vector<Heard> elsewhere_;          ///< by rank: what it did when it was asked last, if that was something else
  Clock::time_point last_tick_;
  Clock::time_point next_link_check_{};
  /// The longest that a rank looks for something to do before it sleeps. It looks for less where that has not paid.
  static constexpr Clock::duration kMostPatience = std::chrono::microseconds(100);
  Clock::duration patience_ = kMostPatience;
  unsigned steps_ = 0;

  bool failing_ = false;  ///< an error is set, and the transports are still open
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;
  std::atomic<bool> told_{false};  ///< of it, who called
  std::string news_;               ///< of it, as others are told: its kind, its text, and after a zero who is to blame
  std::vector<std::shared_ptr<Operation>> buried_;

  std::vector<const std::byte*> fold_sources_;
  std::vector<std::byte*> fold_destinations_;

  std::atomic<bool> helper_needed_{false};
  std::atomic<bool> helper_ends_{false};
  std::atomic<bool> helper_watches_guests_{false};  ///< it will look at them in time
  transport::Descriptor helper_event_;
  transport::Descriptor door_;  ///< of the network; a copy, which stays what it is when that closes
  std::thread helper_;
};

}  // namespace trireme
