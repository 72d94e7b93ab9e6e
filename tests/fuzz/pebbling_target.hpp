#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "redblue/language/error.hpp"
#include "redblue/pebbling/certificate.hpp"
#include "redblue/pebbling/graphs/dot.hpp"
#include "redblue/pebbling/graphs/hdag.hpp"
#include "redblue/pebbling/osp.hpp"
#include "redblue/pebbling/referee.hpp"
#include "redblue/pebbling/search/partition.hpp"

// What the fuzzer of graphs and certificates runs, and tests/pebbling/corpus_test.cpp over the corpus: read the text as
// each of them, write whatever was accepted and read that again, and play certificates.
namespace redblue::fuzz {

inline std::string with_crc(const std::string& body) {
  std::uint32_t crc = 0xffffffffU;
  for (const char c : body) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? (crc >> 1) ^ 0xedb88320U : crc >> 1;
  }
  return body + fmt::format("crc32 {:08x}\n", ~crc);
}

/// False if f throws Error.
template <class F>
bool accepted_by(const F& f) {
  try {
    f();
    return true;
  } catch (const Error&) {
    return false;
  }
}

inline pebbling::Graph sum_of_two() {
  pebbling::Graph g;
  const pebbling::Node x = g.add_input("x"), y = g.add_input("y");
  g.mark_output(g.add(pebbling::Op::sum, {x, y}, "sum"));
  return g;
}

/// Plays the text as a schedule of OneStopParallel of x + y.
inline void play_osp_of_sum(std::string_view text) {
  pebbling::Certificate c{"osp", "x + y", "none", {}, 3, sum_of_two(), {}, {}};
  pebbling::OspSchedule schedule = pebbling::parse_osp(c.graph, text);
  c.rules.processors = schedule.processors;
  c.moves = std::move(schedule.moves);
  pebbling::Referee referee(c.graph, c.rules, c.M);
  for (const pebbling::Move& move : c.moves) referee.play(move);
  referee.finish();
  if (to_osp(c).empty()) std::abort();
}

/// True if the text is a graph, a certificate without its last line that plays, a schedule of OneStopParallel for x + y
/// that does, or a partition of that. Throws nothing, whatever the text.
inline bool accepts_pebbling(std::string_view text) {
  const bool dot = accepted_by([&] {
    const std::string again = pebbling::to_dot(pebbling::parse_dot(text));
    if (pebbling::to_dot(pebbling::parse_dot(again)) != again) std::abort();
  });
  const bool hdag = accepted_by([&] {
    const std::string again = pebbling::to_hdag(pebbling::parse_hdag(text));
    if (pebbling::to_hdag(pebbling::parse_hdag(again)) != again) std::abort();
  });
  const bool plays = accepted_by([&] {
    const std::string whole = with_crc(std::string(text));
    const pebbling::Certificate c = pebbling::parse_certificate(whole);
    if (to_text(c) != whole) std::abort();
    verify(c);
  });
  const bool osp = accepted_by([&] { play_osp_of_sum(text); });
  const bool parts = accepted_by([&] {
    const pebbling::Graph g = sum_of_two();
    check_partition(g, pebbling::parse_partition(g, text), 2);
  });
  return dot || hdag || plays || osp || parts;
}

}  // namespace redblue::fuzz
