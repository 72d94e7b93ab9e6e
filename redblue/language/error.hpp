#pragma once
#include <stdexcept>
#include <string>

#include "redblue/language/words.hpp"

namespace redblue {

/// Base of everything this library throws: the message names the culprit, its value, and what would work.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A problem, option or schedule request that makes no sense or cannot be represented.
class InvalidProblem : public Error {
 public:
  using Error::Error;
};

/// A request that redblue cannot meet (a mask that a schedule cannot take, an unknown element type).
class Unsupported : public Error {
 public:
  using Error::Error;
};

/// Fast memory is too small; both sizes in words.
class CapacityError : public Error {
 public:
  CapacityError(const std::string& what, Words needed, Words available)
      : Error(what), needed(needed), available(available) {}
  Words needed;
  Words available;
};

/// A run needs more bytes beside inputs and outputs than it was given, than the plan allows, or than the machine has.
class MemoryError : public Error {
 public:
  MemoryError(const std::string& what, Words needed, Words available)
      : Error(what), needed(needed), available(available) {}
  Words needed;
  Words available;
};

/// A schedule broke a rule of the game: read of an unwritten word, output left unwritten, tiles out of order.
class RuleError : public Error {
 public:
  using Error::Error;
};

/// A file could not be read or written.
class IoError : public Error {
 public:
  IoError(const std::string& what, std::string path, std::int64_t offset = -1, int errno_value = 0)
      : Error(what), path(std::move(path)), offset(offset), errno_value(errno_value) {}
  std::string path;
  std::int64_t offset;  ///< byte in the file, -1 if it does not apply
  int errno_value;      ///< 0 if the error does not come from the operating system
};

namespace detail {
[[noreturn]] void throw_capacity(Words needed, Words available);
}  // namespace detail

}  // namespace redblue
