// What is known of the machine and its network, for choosing algorithms: as `trireme tune` measured it, or a guess.
#pragma once

#include "trireme/network.h"

#include <filesystem>
#include <string>

namespace trireme {

struct Tuning {
  Link between{};            ///< hosts
  Link inside{};             ///< a host
  double reduce_rate = 8e9;  ///< bytes that a rank adds in a second
  Seconds message{0};        ///< of a rank's time that a message between hosts takes, at either end
  std::string source = {};   ///< where this comes from, for people; empty: a guess

  /// A guess for ranks that nobody measured.
  static Tuning guess();

  std::string to_json() const;

  /// Throws UsageError that names `source` and what is wrong.
  static Tuning parse(const std::string& json, const std::string& source);

  /// TRIREME_TUNING if that is set, else default_file().
  static std::filesystem::path file();

  /// In the user's configuration folder.
  static std::filesystem::path default_file();

  /// What file() holds; a guess if it is not there. Throws UsageError if TRIREME_TUNING names what can't be read.
  static Tuning load();
};

}  // namespace trireme
