// A machine of your own. A schedule says what it loads, streams, computes and stores; a machine gives these words a
// meaning. Real memory comes in lines of 64 bytes: this machine counts how many of them a schedule touches.
#include <array>
#include <iostream>

#include "redblue/machine.hpp"
#include "redblue/schedules.hpp"

using namespace redblue;

// MachineFace turns the words of a schedule into these primitives. Without data, only blocks that come or go matter.
class CacheLines : public MachineFace<CacheLines> {
 public:
  explicit CacheLines(std::array<index_t, kSlowArrays> row_words) : row_words_(row_words) {}

  index_t open(SlowArray, Shape, Layout) { return 0; }
  void close(index_t, SlowArray, Shape) {}
  void read(const Arg&, const Block& b) { touch(b); }
  void write(const Block& b, const Arg&) { touch(b); }
  void run(const auto&, std::span<const Arg> args) {
    for (const Arg& a : args)  // tiles are resident: they cost nothing
      if (a.kind == Arg::Kind::stream) touch(a.block);
  }
  void modify(const auto& k, std::span<const Arg> args) {
    if (!kernel::first_of(k)) touch(args[0].block);  // read and written back, unless this is the first time
    run(k, args);
  }
  void each(index_t n, const auto& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }
  index_t lines = 0;

 private:
  void touch(const Block& b) {
    for (index_t r = b.row; r < b.row + b.shape.rows; ++r) {
      const index_t first = r * row_words_[index_of(b.array)] + b.col;
      lines += (first + b.shape.cols - 1) / 16 - first / 16 + 1;  // 16 words of 4 bytes per line
    }
  }
  std::array<index_t, kSlowArrays> row_words_;
};

template <class S>
index_t lines_of(const schedule::ForwardOperands& x, typename S::Tiling t) {
  CacheLines machine({x.shape.d, x.shape.d, x.shape.d_v, x.shape.d_v, 1, x.shape.n_k});
  S::run(machine, x, t);  // the same loops that are counted, checked and run elsewhere
  const Words words = S::io(x.shape, t).total();
  std::cout << S::name << ": " << words.str() << " words, " << machine.lines << " lines\n";
  return machine.lines;
}

int main() {
  const schedule::ForwardOperands x({256, 256, 64, 64}, 0.125);  // n_q, n_k, d, d_v; scale
  const index_t flash = lines_of<schedule::FlashForward>(x, {7, 1});
  const index_t tiles = lines_of<schedule::ScoreTilesForward>(x, {24, 38});
  // Half the words for score_tiles, but a line for each; flash moves whole rows, (1245440 - 256) / 16 + 256 lines.
  return flash == 78080 && tiles > 4 * flash ? 0 : 1;
}
