#include "redblue/pebbling/search/symmetries.hpp"

#include <utility>

namespace redblue::pebbling {
namespace {

/// Steps of the search for symmetries, all in all: a graph without any of them must not cost minutes.
constexpr std::size_t kMostTrials = 1'000'000;

Set scrambled(Set x) {
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  x ^= x >> 32;
  x *= 0xD6E8FEB86659FD93u;
  return x ^ (x >> 32);
}

/// A colour for each node, such that a symmetry only takes nodes to nodes of the same colour.
std::vector<Set> colours_of(const Board& b) {
  std::vector<Set> colours(b.size());
  for (std::size_t v = 0; v < b.size(); ++v) colours[v] = ((b.inputs >> v) & 1) * 2 + ((b.outputs >> v) & 1);
  for (std::size_t round = 0; round < b.size(); ++round) {
    std::vector<Set> next(b.size());
    for (std::size_t v = 0; v < b.size(); ++v) {
      Set above = 0, below = 0;
      for_each(b.parents[v], [&](std::size_t p) { above += scrambled(colours[p] + 1); });
      for_each(b.children[v], [&](std::size_t c) { below += scrambled(colours[c] + 2); });
      next[v] = scrambled(colours[v] * 3 + scrambled(above) * 5 + scrambled(below) * 7);
    }
    colours = std::move(next);
  }
  return colours;
}

/// All nodes, neighbours soon after each other.
std::vector<std::size_t> neighbours_together(const Board& b) {
  std::vector<std::size_t> walk;
  Set seen = 0;
  for (std::size_t v = b.size(); v-- > 0;) {
    if ((seen & only(v)) != 0) continue;
    seen |= only(v);
    walk.push_back(v);
    for (std::size_t next = walk.size() - 1; next < walk.size(); ++next)
      for_each((b.parents[walk[next]] | b.children[walk[next]]) & ~seen, [&](std::size_t w) {
        seen |= only(w);
        walk.push_back(w);
      });
  }
  return walk;
}

class SymmetrySearch {
 public:
  SymmetrySearch(const Board& b, std::size_t most)
      : board_(b), most_(most), colours_(colours_of(b)), walk_(neighbours_together(b)), image_(b.size()) {}

  std::vector<std::vector<std::size_t>> found() {
    extend(0);
    return std::move(found_);
  }

 private:
  void extend(std::size_t depth) {
    if (found_.size() >= most_ || trials_ >= kMostTrials) return;
    if (depth == walk_.size()) {
      found_.push_back(image_);
      return;
    }
    const std::size_t v = walk_[depth];
    for (std::size_t w = 0; w < board_.size(); ++w) {
      if ((used_ & only(w)) != 0 || colours_[w] != colours_[v] || !fits(v, w, depth)) continue;
      ++trials_;
      image_[v] = w;
      used_ |= only(w);
      extend(depth + 1);
      used_ &= ~only(w);
    }
  }
  bool fits(std::size_t v, std::size_t w, std::size_t depth) const {
    for (std::size_t k = 0; k < depth; ++k) {
      const std::size_t x = walk_[k], y = image_[x];
      if (((board_.parents[v] >> x) & 1) != ((board_.parents[w] >> y) & 1) ||
          ((board_.children[v] >> x) & 1) != ((board_.children[w] >> y) & 1))
        return false;
    }
    return true;
  }

  const Board& board_;
  std::size_t most_;
  std::vector<Set> colours_;
  std::vector<std::size_t> walk_, image_;
  Set used_ = 0;
  std::size_t trials_ = 0;
  std::vector<std::vector<std::size_t>> found_;
};

}  // namespace

Renaming::Renaming(std::vector<std::size_t> image) : image_(std::move(image)) {
  for (std::size_t byte = 0; byte < 8; ++byte)
    for (std::size_t bits = 0; bits < 256; ++bits)
      for (std::size_t bit = 0; bit < 8; ++bit)
        if (((bits >> bit) & 1) != 0 && byte * 8 + bit < image_.size())
          table_[byte][bits] |= only(image_[byte * 8 + bit]);
}

std::vector<Symmetry> symmetries_of(const Board& b, std::size_t most) {
  std::vector<Symmetry> result;
  for (const std::vector<std::size_t>& image : SymmetrySearch(b, most + 1).found()) {
    bool changes = false;
    for (std::size_t v = 0; v < image.size(); ++v) changes = changes || image[v] != v;
    if (!changes || result.size() == most) continue;
    std::vector<std::size_t> edges;
    if (!b.edges_in.empty() || b.edges.empty())
      for (const Board::Edge& e : b.edges)
        edges.push_back(
            first_of(e.from == e.to ? b.edges_in[image[e.to]] : b.edges_out[image[e.from]] & b.edges_in[image[e.to]]));
    result.push_back({Renaming(image), Renaming(std::move(edges))});
  }
  return result;
}

}  // namespace redblue::pebbling
