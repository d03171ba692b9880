#include "trireme/units.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

namespace trireme {
namespace {

struct Quantity {
  double number;
  std::string_view unit;
};

// Splits "1.5 GiB" into its number and what stands after it.
Quantity split(std::string_view text, std::string_view what, std::string_view example) {
  Quantity quantity{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), quantity.number);
  if (error != std::errc() || !std::isfinite(quantity.number) || quantity.number < 0) {
    throw UsageError(fmt::format("'{}' is not {}: write a number and a unit, like {}", text, what, example));
  }
  quantity.unit = text.substr(static_cast<std::size_t>(end - text.data()));
  while (quantity.unit.starts_with(' ')) quantity.unit.remove_prefix(1);
  return quantity;
}

// Takes a prefix of size off the unit: K, M, G, T (decimal) or Ki, Mi, Gi, Ti (binary).
double take_prefix(std::string_view& unit) {
  constexpr std::string_view kPrefixes = "KMGT";
  if (unit.empty()) return 1;
  const auto letter = static_cast<char>(std::toupper(static_cast<unsigned char>(unit.front())));
  const std::size_t power = kPrefixes.find(letter);
  if (power == std::string_view::npos) return 1;
  unit.remove_prefix(1);
  const bool binary = unit.starts_with('i');
  if (binary) unit.remove_prefix(1);
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(power + 1));
}

}  // namespace

std::uint64_t parse_bytes(std::string_view text) {
  Quantity quantity = split(text, "a size", "16MiB");
  const double factor = take_prefix(quantity.unit);
  const double bytes = std::round(quantity.number * factor);
  const bool known = quantity.unit == "B" || quantity.unit.empty();
  if (!known) throw UsageError(fmt::format("'{}' is not a size: write it like 4096, 64KiB or 16MB", text));
  constexpr double kMost = 1e15;
  if (bytes > kMost) throw UsageError(fmt::format("a size of '{}' is beyond reason: at most 1000 TB", text));
  return static_cast<std::uint64_t>(bytes);
}

double parse_rate(std::string_view text) {
  Quantity quantity = split(text, "a rate", "10Gbit or 8GB");
  const double factor = take_prefix(quantity.unit);
  std::string_view unit = quantity.unit;
  if (unit.ends_with("/s")) unit.remove_suffix(2);
  double size = 0;
  if (unit == "B") size = 1;
  if (unit == "bit" || unit == "bits" || unit == "bps" || unit == "b") size = 1.0 / 8;
  if (size == 0) throw UsageError(fmt::format("'{}' is not a rate: write it like 10Gbit, 500Mbit/s or 8GB/s", text));
  const double rate = quantity.number * factor * size;
  if (!(rate > 0)) throw UsageError(fmt::format("a rate of '{}' moves nothing: it must be more than 0", text));
  constexpr double kMost = 1e15;
  if (rate > kMost) throw UsageError(fmt::format("a rate of '{}' is beyond reason: at most 1000 TB/s", text));
  return rate;
}

Seconds parse_time(std::string_view text) {
  const Quantity quantity = split(text, "a time", "20us");
  struct Unit {
    std::string_view name;
    double seconds;
  };
  constexpr std::array<Unit, 6> kUnits{
      {{"ns", 1e-9}, {"us", 1e-6}, {"µs", 1e-6}, {"μs", 1e-6}, {"ms", 1e-3}, {"s", 1}}};
  constexpr double kMost = 3600;
  for (const Unit& unit : kUnits) {
    if (unit.name != quantity.unit) continue;
    if (quantity.number * unit.seconds > kMost) {
      throw UsageError(fmt::format("a time of '{}' is beyond reason: at most an hour", text));
    }
    return Seconds(quantity.number * unit.seconds);
  }
  if (quantity.unit.empty() && quantity.number == 0) return Seconds(0);
  throw UsageError(fmt::format("'{}' is not a time: write it with ns, us, ms or s, like 20us", text));
}

std::string format_bytes(double bytes) {
  constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  constexpr double kRoundsTo1024 = 1023.9995;
  std::size_t unit = 0;
  while (bytes >= kRoundsTo1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  std::string number = fmt::format("{:.3f}", bytes);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.ends_with('.')) number.pop_back();
  return fmt::format("{} {}", number, kUnits[unit]);
}

std::string format_time(Seconds time) {
  constexpr double kRoundsToOne = 0.99995;
  const double seconds = time.count();
  if (seconds >= kRoundsToOne) return fmt::format("{:.4g} s", seconds);
  if (seconds >= kRoundsToOne * 1e-3) return fmt::format("{:.4g} ms", seconds * 1e3);
  if (seconds >= kRoundsToOne * 1e-6 || seconds == 0) return fmt::format("{:.4g} us", seconds * 1e6);
  return fmt::format("{:.4g} ns", seconds * 1e9);
}

}  // namespace trireme
