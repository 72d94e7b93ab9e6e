#include "redblue/pebbling/certificate.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>

#include "pebbling/graphs.hpp"
#include "pebbling/players.hpp"
#include "redblue/pebbling/graphs/catalog.hpp"
#include "support/refusal.hpp"

namespace redblue::test {
namespace {

using pebbling::Certificate;
using pebbling::Graph;
using pebbling::Move;
using pebbling::Node;
using pebbling::Op;
using pebbling::parse_certificate;
using pebbling::parse_rules;

constexpr const char* kRules[] = {
    "place", "place once", "slide", "partial", "slide once unused-inputs", "place once processors=3"};

Certificate certificate_of(const char* family, const pebbling::Arguments& arguments, const char* rules) {
  pebbling::NamedGraph g = pebbling::make_graph(family, arguments);
  return plain_certificate(std::move(g.graph), parse_rules(rules), g.text, g.problem);
}

/// CRC-32 by a table of bytes.
std::uint32_t crc32_by_table(const std::string& text) {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    table[byte] = byte;
    for (int bit = 0; bit < 8; ++bit) table[byte] = table[byte] & 1 ? table[byte] >> 1 ^ 0xedb88320U : table[byte] >> 1;
  }
  std::uint32_t crc = 0xffffffffU;
  for (const char c : text) crc = table[(crc ^ static_cast<unsigned char>(c)) & 255] ^ crc >> 8;
  return crc ^ 0xffffffffU;
}
TEST(Certificate, tests_know_crc32) { EXPECT_EQ(crc32_by_table("123456789"), 0xcbf43926U); }

/// With the digest of what stands before it.
std::string signed_again(std::string text) {
  text.erase(text.rfind("crc32 "));
  return text + fmt::format("crc32 {:08x}\n", crc32_by_table(text));
}

/// Is it read and found true?
bool accepted(const std::string& text) {
  try {
    verify(parse_certificate(text));
    return true;
  } catch (const Error& e) {
    RC_ASSERT(std::string(e.what()).size() > 10);
    return false;
  }
}

TEST(Certificate, has_a_text) {
  const Certificate c = certificate_of("tree", {{"k", "2"}, {"depth", "1"}}, "place once");
  const std::string body =
      "redblue pebbling certificate 1\nschedule plain\ngraph tree k=2 depth=1\nproblem none\nrules place once\nM 3\n"
      "nodes 3\nx[0] input 1 . -\nx[1] input 1 . -\nv[0,0] sum 1 out 0,1\nmoves 7\nr0 r1 c2 w2 d2 d0 d1\n"
      "counts reads=2 writes=1 computed=1 peak=3\n";
  EXPECT_EQ(to_text(c), signed_again(body + "crc32 "));
}

RC_GTEST_PROP(Certificate, comes_back_from_its_text, ()) {
  const Certificate c = plain_certificate(
      any_graph(), parse_rules(*rc::gen::elementOf(std::vector<std::string>(std::begin(kRules), std::end(kRules)))));
  const std::string text = to_text(c);
  const Certificate back = parse_certificate(text);
  verify(back);
  RC_ASSERT(to_text(back) == text);
  RC_ASSERT(back.moves == c.moves);
  RC_ASSERT(back.rules == c.rules);
  RC_ASSERT(back.cost == c.cost);
}

TEST(Certificate, comes_back_with_formulas_and_constants) {
  for (const char* const family : {"attention", "online", "backward", "gradient"})
    for (const char* const rules : kRules) {
      const Certificate c = certificate_of(family, {{"nq", "2"}, {"nk", "3"}, {"d", "2"}, {"dv", "1"}}, rules);
      const std::string text = to_text(c);
      const Certificate back = parse_certificate(text);
      verify(back);
      EXPECT_EQ(to_text(back), text);
    }
}

/// Any byte changed, taken out or put in.
RC_GTEST_PROP(Certificate, is_refused_with_another_byte, ()) {
  std::string text = to_text(certificate_of("attention", {{"nq", "1"}, {"nk", "2"}, {"d", "1"}}, "slide"));
  const auto at = *rc::gen::inRange<std::size_t>(0, text.size());
  const char byte = *rc::gen::element('0', '1', '7', ' ', '\n', 'r', '<', '\0', '\xff');
  const int how = *rc::gen::inRange(0, 3);
  if (how == 0 && text[at] == byte) return;
  if (how == 0) text[at] = byte;
  if (how == 1) text.erase(at, 1);
  if (how == 2) text.insert(at, 1, byte);
  RC_ASSERT(!accepted(text));
}

/// The same with the digest made anew. What is accepted has the same graph and plays as many reads and writes: the
/// change was to a text that no rule knows (names, who played), or gave the play more room.
RC_GTEST_PROP(Certificate, counts_what_its_moves_cost, ()) {
  const Certificate c = certificate_of("attention", {{"nq", "1"}, {"nk", "2"}, {"d", "1"}}, "slide");
  std::string text = to_text(c);
  const auto at = *rc::gen::inRange<std::size_t>(0, text.rfind("crc32"));
  const char byte = *rc::gen::element('0', '1', '2', '9', ' ', '\n', 'r', 'w', 'd', 'c', 's', '<');
  if (*rc::gen::arbitrary<bool>())
    text[at] = byte;
  else
    text.erase(at, 1);
  text = signed_again(text);
  if (!accepted(text)) return;
  const Certificate other = parse_certificate(text);
  RC_ASSERT(other.cost == c.cost);
  RC_ASSERT(other.M >= c.cost.peak);
}

TEST(Certificate, is_refused_when_its_moves_say_otherwise) {
  using Kind = Move::Kind;
  const auto refused = [](const Certificate& c) {
    EXPECT_NE(refusal_of([&] { verify(c); }), "accepted") << to_text(c);
  };
  for (const char* const rules : kRules) {
    const Certificate c = certificate_of("attention", {{"nq", "2"}, {"nk", "2"}, {"d", "1"}}, rules);
    for (std::size_t k = 0; k < c.moves.size(); ++k) {
      Certificate gone = c;
      gone.moves.erase(gone.moves.begin() + static_cast<std::ptrdiff_t>(k));
      if (c.moves[k].kind != Kind::remove) refused(gone);  // a pebble that stays is no lie where there is room
      Certificate twice = c;
      twice.moves.insert(twice.moves.begin() + static_cast<std::ptrdiff_t>(k), c.moves[k]);
      refused(twice);
      for (const Kind kind : {Kind::read, Kind::write, Kind::compute, Kind::slide, Kind::update, Kind::remove}) {
        Certificate other = c;
        other.moves[k].kind = kind;
        // A node that is placed where it could slide counts the same, if there is room.
        const bool true_as_well = c.moves[k].kind == Kind::slide && kind == Kind::compute;
        if (kind != c.moves[k].kind && !true_as_well) refused(other);
      }
    }
    Certificate less = c;
    less.M = c.cost.peak - 1;
    refused(less);
    for (std::size_t pebbling::Cost::* field :
         {&pebbling::Cost::reads, &pebbling::Cost::writes, &pebbling::Cost::computed, &pebbling::Cost::peak}) {
      Certificate counted = c;
      ++(counted.cost.*field);
      refused(counted);
    }
  }
}

TEST(Certificate, cut_at_any_place_is_refused) {
  const std::string text = to_text(certificate_of("tree", {{"k", "2"}, {"depth", "2"}}, "partial"));
  for (std::size_t end = 0; end < text.size(); ++end)
    EXPECT_NE(refusal_of([&] { parse_certificate(text.substr(0, end)); }), "accepted");
}

TEST(Certificate, says_what_is_wrong) {
  const std::string text = to_text(certificate_of("tree", {{"k", "2"}, {"depth", "1"}}, "place once"));
  const auto says = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return refusal_of([&] { verify(parse_certificate(signed_again(changed))); });
  };
  EXPECT_EQ(refusal_of([] { parse_certificate(""); }), "the certificate ends after line 0: it was cut");
  EXPECT_EQ(says("redblue", "Redblue"), "line 1: a certificate begins with: redblue pebbling certificate 1");
  EXPECT_EQ(says("place", "glide"), "line 5: rules begin with place, slide or partial, not with glide");
  EXPECT_EQ(says("M 3", "M 99999999999999999999"), "line 6: M 99999999999999999999 is no number that it may be");
  EXPECT_EQ(says("nodes 3", "nodes 999999999"), "line 7: nodes 999999999 is no number that it may be");
  EXPECT_EQ(says("nodes 3", "nodes 4"), "line 11: constant  is no number that it may be");
  EXPECT_EQ(says("0,1\n", "0,2\n"), "line 10: node 2 has parent 2, which does not come before it");
  EXPECT_EQ(says("moves 7", "moves 999999999999"), "line 13: node ounts is no number that it may be");
  EXPECT_EQ(says("moves 7", "moves 6"), "the certificate is not written as redblue writes it");
  EXPECT_EQ(says("r1", "x1"), "line 12: a move is r, w, c, s, u or d and a node, not 'x1'");
  EXPECT_EQ(says("r1", "r3"), "move 2: read node 3: the graph has 3 nodes");
  EXPECT_EQ(says("r1", "r2"), "move 2: read v[0,0]: it has no blue pebble");
  EXPECT_EQ(says("M 3", "M 2"), "move 3: compute v[0,0]: all 2 red pebbles are in use");
  EXPECT_EQ(
      says("reads=2", "reads=1"),
      "the moves count reads=2 writes=1 computed=1 peak=3, the certificate says reads=1 writes=1 computed=1 peak=3");
  EXPECT_EQ(says("x[1] input", "x[0] input"), "two nodes are called x[0]");
  EXPECT_EQ(says("sum 1", "sum 2"), "line 10: sum has no constant: 1 stands in its place, not 2");
  std::string other_digest = text;
  other_digest[text.size() - 2] ^= 1;
  EXPECT_EQ(refusal_of([&] { parse_certificate(other_digest); }),
            fmt::format("line 14: the digest is {}, that of the lines before it {}",
                        other_digest.substr(text.size() - 9, 8), text.substr(text.size() - 9, 8)));
}

TEST(Certificate, has_formulas_as_redblue_writes_them) {
  Graph g;
  const std::vector<Node> parents{g.add_input("a")};
  g.mark_output(g.add_formula(parents, "x0 1 +", "b"));
  Certificate c{"by hand", "two nodes", "none", pebbling::parse_rules("place"), 2, g, {}, {}};
  c.moves = {{Move::Kind::read, 0}, {Move::Kind::compute, 1}, {Move::Kind::write, 1}};
  c.cost = {1, 1, 1, 2};
  const std::string text = to_text(c);
  verify(parse_certificate(text));
  for (const char* const spelled : {"x00 1 +", "x0 1.0 +", "x0 01 +", "x0 1e0 +", "x0 1 + ", "x0 1  +"}) {
    std::string changed = text;
    changed.replace(changed.find("x0 1 +"), 6, spelled);
    EXPECT_NE(refusal_of([&] { parse_certificate(signed_again(changed)); }), "accepted") << spelled;
  }
}

TEST(Certificate, holds_no_names_with_blanks) {
  for (const char* const name : {"a b", "-", "a\n"}) {
    Graph g;
    g.add_input(name);
    EXPECT_NE(refusal_of([&] { to_text(Certificate{"x", "x", "none", {}, 1, g, {}, {}}); }), "accepted");
  }
  EXPECT_NE(refusal_of([&] { to_text(Certificate{"x\ny", "x", "none", {}, 1, {}, {}, {}}); }), "accepted");
}

}  // namespace
}  // namespace redblue::test
