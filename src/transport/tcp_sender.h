// The outgoing way of a connection: a queue of messages, whose bytes go from where they lie to the kernel.
#pragma once

#include "transport/tcp_stream.h"
#include "transport/transport.h"
#include "transport/wire.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <limits>

namespace trireme::transport {

/// Messages in a row, linked through themselves.
class OutgoingList {
 public:
  bool empty() const { return first_ == nullptr; }
  Outgoing* first() const { return first_; }

  void push(Outgoing& outgoing) {
    outgoing.next = nullptr;
    (first_ == nullptr ? first_ : last_->next) = &outgoing;
    last_ = &outgoing;
  }

  Outgoing& pop() {
    Outgoing& outgoing = *first_;
    first_ = outgoing.next;
    outgoing.next = nullptr;
    return outgoing;
  }

  void clear() { first_ = nullptr; }

 private:
  Outgoing* first_ = nullptr;
  Outgoing* last_ = nullptr;
};

class TcpSender {
 public:
  enum class Result : std::uint8_t {
    all,   ///< nothing is left
    some,  ///< the kernel takes no more for now
    none,  ///< the connection is broken; errno says how
  };

  /// The bytes of a record that go before any message that is not yet under way.
  template <typename Record>
  void put_first(const Record& record) {
    static_assert(sizeof record <= sizeof record_);
    std::memcpy(record_.data(), &record, sizeof record);
    record_bytes_ = sizeof record;
    record_done_ = 0;
  }

  void post(Outgoing& outgoing) {
    outgoing.done = 0;
    queue_.push(outgoing);
  }

  /// The connection stays inside a host. There a packet of the kernel's holds up to 65464 bytes (IPv6; 65483 by IPv4),
  /// and may begin a page: parts that are not divided begin and end where wire.h wants it.
  void stay_on_host() { most_at_once_ = 65464 / wire::kGrain * wire::kGrain; }

  /// Hands the record to the kernel, but no message.
  Result send_record(const TcpStream& stream);

  /// Hands over as much as the kernel takes; messages that it has wholly are moved to `sent`.
  Result send(const TcpStream& stream, OutgoingList& sent);

  /// Whether there are messages that have not gone out wholly.
  bool busy() const { return !queue_.empty(); }

  /// Whether there is a record that has not gone out wholly.
  bool record_pending() const { return record_done_ < record_bytes_; }

  bool pending() const { return busy() || record_pending(); }

  /// Forgets all messages.
  void clear() { queue_.clear(); }

 private:
  class Gather;

  void account(std::size_t bytes, OutgoingList& sent);

  OutgoingList queue_;
  std::array<std::byte, sizeof(wire::Hello)> record_{};
  std::size_t record_bytes_ = 0;
  std::size_t record_done_ = 0;
  std::size_t most_at_once_ = std::numeric_limits<std::size_t>::max();
};

}  // namespace trireme::transport
