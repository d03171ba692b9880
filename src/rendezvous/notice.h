// How the ranks of one host find each other when whoever started them has named no place to meet: rank 0 listens at a
// port that the system gives, and puts a notice of it where the others look, under a name that only their job has. Nobody
// else could give them a secret, so that is there too, unless they have one.
//
// Only this user can read or write a notice. Rank 0 holds a lock on it for as long as it is there, which ends with the
// process: a notice without the lock was left behind by a rank 0 that was killed. Nobody believes it, and who finds it
// takes it away.
#pragma once

#include "base/secret.h"
#include "rendezvous/socket.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trireme::rendezvous {

/// Where the notice of a job is, the same for all its ranks: in XDG_RUNTIME_DIR, if that is this user's, or else in
/// /tmp.
std::string notice_path(std::string_view job);

struct Posted {
  std::uint16_t port = 0;
  Secret secret{};  ///< that rank 0 has made for the job; none: it has another, or there is none
};

class Notice {
 public:
  /// Puts it there as a whole, in place of those that this user's jobs have left behind. Throws SystemError that says
  /// why it can't; UsageError, when another rank 0 of the same job has one there.
  Notice(std::string path, const Posted& posted);

  /// Takes it away.
  ~Notice();
  Notice(const Notice&) = delete;
  Notice& operator=(const Notice&) = delete;

 private:
  std::string path_;
  Descriptor file_;
};

/// What a notice says; none: it is not there yet. Throws UsageError if somebody else has put one there.
std::optional<Posted> read_notice(const std::string& path);

/// A name for what started this process and others as ranks, where their environment holds none: the first process up
/// from here that does not have the variable, with the time at which it began.
std::string name_of_starter(const char* variable);

}  // namespace trireme::rendezvous
