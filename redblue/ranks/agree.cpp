#include "redblue/ranks/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/ranks/channel.hpp"

namespace redblue::ranks {
namespace {

/// What a rank tells rank 0, and what rank 0 answers.
struct Note {
  std::uint64_t asked = 0;  ///< a hash of it
  char wrong[248] = {};     ///< empty: nothing is
};
static_assert(sizeof(Note) == 256);

/// FNV-1a.
std::uint64_t hash_of(const std::string& text) {
  std::uint64_t h = 14695981039346656037U;
  for (const char c : text) h = (h ^ static_cast<std::uint8_t>(c)) * 1099511628211U;
  return h;
}

void write(Note& note, const std::string& text) {
  const std::size_t size = std::min(text.size(), sizeof(note.wrong) - 1);
  std::memcpy(note.wrong, text.data(), size);
  note.wrong[size] = 0;
}

std::string text_of(const std::exception_ptr& problem) {
  try {
    std::rethrow_exception(problem);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an unknown error";
  }
}

void wait_for(Transport::Pending& message, int rank, std::chrono::milliseconds patience) {
  if (!message.wait(patience))
    throw Error(fmt::format("rank {} has not said within {} ms what it was asked for: does every rank call this?", rank,
                            patience.count()));
}

}  // namespace

void agree(Transport& transport, const std::string& asked, const std::exception_ptr& problem,
           std::chrono::milliseconds patience) {
  Note own{.asked = hash_of(asked)};
  const int rank = transport.rank(), ranks = transport.ranks();
  if (problem != nullptr) write(own, fmt::format("rank {}: {}", rank, text_of(problem)));
  const auto bytes = [](Note& n) { return std::as_writable_bytes(std::span(&n, 1)); };
  if (rank == 0) {
    std::vector<Note> notes(static_cast<std::size_t>(ranks));
    std::vector<std::unique_ptr<Transport::Pending>> messages;
    for (int r = 1; r < ranks; ++r)
      messages.push_back(transport.receive(r, kAgreement, bytes(notes[static_cast<std::size_t>(r)])));
    Note verdict = own;
    for (int r = 1; r < ranks; ++r) {
      wait_for(*messages[static_cast<std::size_t>(r - 1)], r, patience);
      const Note& its = notes[static_cast<std::size_t>(r)];
      if (verdict.wrong[0] != 0) continue;
      if (its.wrong[0] != 0)
        verdict = its;
      else if (its.asked != own.asked)
        write(verdict, fmt::format("rank {} was not asked for what rank 0 was: problem, layout, types and options are "
                                   "the same on every rank",
                                   r));
    }
    messages.clear();
    for (int r = 1; r < ranks; ++r) messages.push_back(transport.send(r, kAgreement, bytes(verdict)));
    for (int r = 1; r < ranks; ++r) wait_for(*messages[static_cast<std::size_t>(r - 1)], r, patience);
    own = verdict;
  } else {
    const auto sent = transport.send(0, kAgreement, bytes(own));
    Note verdict;
    const auto answer = transport.receive(0, kAgreement, bytes(verdict));
    wait_for(*answer, 0, patience);
    wait_for(*sent, 0, patience);
    own = verdict;
  }
  if (problem != nullptr) std::rethrow_exception(problem);
  if (own.wrong[0] != 0) throw Error(own.wrong);
}

}  // namespace redblue::ranks
