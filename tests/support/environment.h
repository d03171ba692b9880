// Variables of the environment, for the time of a test.
#pragma once

#include <cstdlib>
#include <string>
#include <utility>

namespace trireme {

/// A variable that is set until this goes.
class Environment {
 public:
  Environment(std::string name, const std::string& value) : name_(std::move(name)) {
    ::setenv(name_.c_str(), value.c_str(), 1);
  }
  ~Environment() { ::unsetenv(name_.c_str()); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  std::string name_;
};

}  // namespace trireme
