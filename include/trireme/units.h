// Sizes, rates and times as people write them: 16MiB, 10Gbit, 8GB/s, 20us.
#pragma once

#include "trireme/error.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

using Seconds = std::chrono::duration<double>;

/// Bytes from "1048576", "16MiB", "4KB", "1.5GiB" (K, M, G, T are decimal; Ki, Mi, Gi, Ti binary). Throws UsageError.
std::uint64_t parse_bytes(std::string_view text);

/// Bytes a second from "10Gbit", "500Mbit/s", "8GB", "8GB/s" (bits with "bit", else bytes). Throws UsageError.
double parse_rate(std::string_view text);

/// A time from "20us", "1.5ms", "2s", "300ns". A bare 0 needs no unit. Throws UsageError.
Seconds parse_time(std::string_view text);

/// The shortest binary form with at most three figures after the point: 16 MiB, 1.5 KiB, 100 B.
std::string format_bytes(double bytes);

/// Four significant figures and a unit: 1.234 ms.
std::string format_time(Seconds time);

}  // namespace trireme
