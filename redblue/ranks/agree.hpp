#pragma once
#include <chrono>
#include <exception>
#include <string>

#include "redblue/ranks/transport.hpp"

namespace redblue::ranks {

/// All ranks find out whether all of them were asked for the same, and can begin. `asked` says what this rank was asked
/// for; `problem` is what it throws itself, or null. Returns on every rank or throws on every rank: its own error, or
/// a RankError that names the rank and what it said.
void agree(Transport& transport, const std::string& asked, const std::exception_ptr& problem,
           std::chrono::milliseconds patience);

}  // namespace redblue::ranks
