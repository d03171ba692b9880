// Inside the TCP transport: the connections of a rank, from dialling to goodbye.
//
// A pair of ranks has one connection of each number, which carries messages both ways, so that the acknowledgements of
// one way travel with the messages of the other. (Two of one way each cost half as much again for a small message.)
// Whoever has a message first dials and says hello; messages follow when the answer is there. When both dial at the
// same time, the lower rank's connection counts: the higher rank gives up its own when the other has proved who it is,
// and the lower one keeps the other's aside, without an answer, until its own is up.
#pragma once

#include "base/tls.h"
#include "transport/socket.h"
#include "transport/tcp.h"
#include "transport/tcp_buffers.h"
#include "transport/tcp_door.h"
#include "transport/tcp_handshake.h"
#include "transport/tcp_receiver.h"
#include "transport/tcp_sender.h"
#include "transport/tcp_stream.h"
#include "transport/wire.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace trireme::transport {

inline constexpr const char* kTcpLeftEarly = "said goodbye before all that was sent to it had arrived";

class Tcp::Impl final : Inbox {
 public:
  Impl(Tcp& self, int rank, int ranks, Inbox& inbox, const std::string& bind_address, std::uint64_t job,
       int connections, const Guard& guard);

  const std::string& address() const { return address_; }
  int descriptor() const { return poller_.descriptor(); }
  TcpCounts counts() const;
  void meet(const std::vector<std::string>& addresses);
  void watch(int fd);
  int door() const { return closed_ ? -1 : door_->descriptor(); }
  Greeted greet();
  bool has_guests() const { return !closed_ && door_->has_guests(); }

  void post(Outgoing& outgoing);
  bool progress();
  bool wait(int milliseconds);
  void close(std::chrono::milliseconds patience);
  bool is_connected(int peer) const;
  void check_links();
  void cut();
  void release(Incoming& incoming);

 private:
  enum class State : std::uint8_t {
    none,     // nobody has had anything to say yet
    dialled,  // from here, but not answered yet
    up,
    ended,
  };

  struct Connection {
    int peer = 0;
    int number = 0;  // of the pair's
    State state = State::none;
    bool dialled_here = false;
    bool lacks_room = false;  // in the kernel, so that messages wait
    bool bounded = false;     // in what may be on its way, or need not be
    bool farewell = false;    // has been said from here
    int dials = 0;
    std::chrono::steady_clock::time_point dialled_at{};  // first
    Descriptor socket;
    std::optional<TcpGuest> crossed;  // the peer's, which came while the own one was dialled
    Transcript said;                  // before it was up
    std::unique_ptr<Tls> tls;         // where all is encrypted, once it is up
    TcpSender sender;
    std::unique_ptr<TcpReceiver> receiver;
    std::array<std::byte, sizeof(wire::Hello)> answer{};
    std::size_t answer_bytes = 0;
  };

  enum class Standing : std::uint8_t {
    well,
    failing,  // and the inbox is still to hear of it
    lost,
  };

  struct Peer {
    std::optional<Address> address;
    Standing standing = Standing::well;
    bool left = false;     // with a goodbye
    bool garbled = false;  // what it sent made no sense
    std::string why;
  };

  // Coming up and going down: tcp_connect.cpp.
  void dial(Connection& connection);
  bool say_hello(Connection& connection);
  void hear_answer(Connection& connection);
  void take_answer(Connection& connection, const wire::Hello& heard);
  void enter(TcpGuest guest);
  void adopt(Connection& connection, TcpGuest guest);
  void open(Connection& connection);
  void could_not_connect(Connection& connection, const std::string& why);
  void end(Connection& connection);
  void say_goodbyes();
  bool pending() const;
  wire::Hello hello_to(const Connection& connection) const;
  std::string whereabouts(int peer) const;

  // Moving messages: tcp.cpp.
  bool look(int milliseconds = 0);
  void look_at(Connection& connection, std::uint32_t events);
  static std::string cut_off(const Connection& connection);
  static bool is_late(const Connection& connection);
  bool hear(Connection& connection);
  void flush(Connection& connection);
  void want_room(Connection& connection, bool want);
  static TcpStream stream(const Connection& connection) { return {connection.socket.get(), connection.tls.get()}; }
  std::span<Connection> connections_to(int peer);
  std::uint64_t tag(const Connection& connection) const;

  // Telling of it: tcp_tell.cpp.
  void fail(int peer, std::string why);
  void lose(int peer);
  void leave(Connection& connection);
  void settle();
  void tell_sent();

  // What receivers call: the inbox, with care.
  std::size_t place(int peer, const Envelope& envelope, std::size_t bytes, std::span<Piece> pieces) override;
  void arrived(int peer, const Envelope& envelope, const Incoming& incoming) override;
  void sent(Outgoing& outgoing, bool answered) override;
  void lost(int peer, const std::string& why) override;
  void garbled(int peer, const std::string& why) override;
  void closed(int peer) override;

  Tcp& self_;
  const int rank_;
  const std::uint64_t job_;
  const int per_pair_;
  const Guard guard_;
  Inbox& inbox_;

  Poller poller_;
  TcpBuffers buffers_;
  std::optional<TcpDoor> door_;
  TcpDoor::Enter enter_;
  std::string address_;
  std::vector<Peer> peers_;
  std::vector<Connection> connections_;  // those of a peer are neighbours
  std::vector<Connection*> up_;
  int dialling_ = 0;
  int lacking_room_ = 0;
  unsigned passes_ = 0;
  int accepted_ = 0;
  int dialled_ = 0;
  int strangers_ = 0;  // of a door that is closed

  OutgoingList sent_;         // that the inbox is still to hear of
  std::vector<int> failing_;  // likewise
  bool telling_ = false;      // the inbox something, right now
  bool settling_ = false;
  bool closing_ = false;  // the inbox hears nothing any more
  bool closed_ = false;
};

}  // namespace trireme::transport
