#include "redblue/ranks/agree.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "redblue/language/error.hpp"
#include "redblue/ranks/channel.hpp"
#include "redblue/ranks/message.hpp"

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

Message message_of(const Note& note) {
  const auto bytes = std::as_bytes(std::span(&note, 1));
  return Message({bytes.begin(), bytes.end()});
}
Note note_of(Message& m) {
  Note note;
  std::memcpy(&note, m.bytes().data(), sizeof note);
  return note;
}

void wait_for(Message& message, int rank, std::chrono::milliseconds patience) {
  if (!message.wait(patience))
    throw RankError(fmt::format("rank {} has not said within {} ms what it was asked for: does every rank call this?",
                                rank, patience.count()));
}

}  // namespace

void agree(Transport& transport, const std::string& asked, const std::exception_ptr& problem,
           std::chrono::milliseconds patience) {
  Note own{.asked = hash_of(asked)};
  const int rank = transport.rank(), ranks = transport.ranks();
  if (problem != nullptr) write(own, fmt::format("rank {}: {}", rank, text_of(problem)));
  if (rank == 0) {
    std::vector<Message> messages;
    messages.reserve(static_cast<std::size_t>(ranks));
    for (int r = 1; r < ranks; ++r) messages.emplace_back(message_of({})).receive(transport, r, kAgreement);
    Note verdict = own;
    for (int r = 1; r < ranks; ++r) {
      Message& message = messages[static_cast<std::size_t>(r - 1)];
      wait_for(message, r, patience);
      const Note its = note_of(message);
      if (verdict.wrong[0] != 0) continue;
      if (its.wrong[0] != 0)
        verdict = its;
      else if (its.asked != own.asked)
        write(verdict, fmt::format("rank {} was not asked for what rank 0 was: problem, layout, types and options are "
                                   "the same on every rank",
                                   r));
    }
    messages.clear();
    for (int r = 1; r < ranks; ++r) messages.emplace_back(message_of(verdict)).send(transport, r, kAgreement);
    for (int r = 1; r < ranks; ++r) wait_for(messages[static_cast<std::size_t>(r - 1)], r, patience);
    own = verdict;
  } else {
    Message sent = message_of(own), answer = message_of({});
    sent.send(transport, 0, kAgreement);
    answer.receive(transport, 0, kAgreement);
    wait_for(answer, 0, patience);
    wait_for(sent, 0, patience);
    own = note_of(answer);
  }
  if (problem != nullptr) std::rethrow_exception(problem);
  if (own.wrong[0] != 0) throw RankError(own.wrong);
}

}  // namespace redblue::ranks
