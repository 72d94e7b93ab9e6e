#pragma once
#include <string>

#include "redblue/language/error.hpp"

namespace redblue::test {

/// The message of the error of this type that f() ends in.
template <class E = Error, class F>
std::string refusal_of(const F& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace redblue::test
