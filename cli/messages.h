// What a launcher and its agent on another host say to each other, over the agent's standard input and output.
//
// An agent first says a line, kGreeting and its build; whatever comes before, as from a shell's start-up files, is not
// the agent's. Then both send messages: JSON in CBOR, whose strings may hold any bytes, with their length before them.
//
//   launcher                                        agent
//                                                <- greeting
//   find     addresses and port of the rendezvous, the folder, the variables with the job's secret ->
//                                                <- found      addresses: the one it reaches, its own; a free port
//   start    a Share                             ->
//                                                <- out, err   bytes
//   clock    the launcher's                      ->
//                                                <- clock      the same, and the agent's
//   look                                         ->
//                                                <- recorded   what a rank did, and whom it blames; also before its end
//                                                <- alive      ranks, their processes, and what stopped them
//                                                <- ended      ranks, and how
//   fate     a rank of any host, and how it ended ->
//                                                <- asks       what ranks of other hosts did last: a rank wants to know
//   last     one of them, and its last operation ->
//                                                <- quiet      nothing more comes of the ranks
//   input    for rank 0; empty: there is no more ->
//                                                <- taken      so that more may be sent
//   signal, end, kill, finish                    ->
//                                                <- remark     for people
//                                                <- failed     why, exit status: it could not start its ranks
//   beat                                         <->           now and then: the other side is still there
//
// When the launcher's side closes, the agent kills its ranks and ends.
#pragma once

#include "cli/host.h"

#include <nlohmann/json.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::cli {

using Message = nlohmann::json;

/// The number goes up when launchers and agents of different builds would misunderstand each other.
inline constexpr std::string_view kGreeting = "trireme host-agent 6";

/// How often each side says that it is there, and after how long a silence it is taken for dead.
inline constexpr std::chrono::seconds kBeat{5};
inline constexpr std::chrono::seconds kSilence{30};

/// A message as it is sent.
std::string pack(const Message& message);

/// Puts messages together from bytes as they come.
class Unpacker {
 public:
  void add(std::string_view bytes) { bytes_ += bytes; }

  /// The next that is whole. Throws ProtocolError if the bytes are none.
  std::optional<Message> next();

 private:
  std::string bytes_;
};

/// A time on a steady clock. Throws ProtocolError if it is beyond reason.
std::chrono::nanoseconds to_time(const Message& message);

Message to_message(const Share& share);
Share to_share(const Message& message);
Message to_message(const Alive& alive);
Alive to_alive(const Message& message);
Message to_message(const End& end);
Message to_message(const Record& record);
Record to_record(const Message& message);
Message to_message(const Recorded& recorded);
Recorded to_recorded(const Message& message);
End to_end(const Message& message);

}  // namespace trireme::cli
