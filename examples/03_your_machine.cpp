// A machine of your own. A schedule says what it loads, streams, computes and stores; a machine gives these words a
// meaning. Real memory comes in lines of 64 bytes: this machine counts how many of them a schedule touches. A schedule
// that moves few words may still touch many lines, if it moves columns.
#include <array>
#include <cstdio>

#include "redblue/machine/counting.hpp"
#include "redblue/schedule/flash_forward.hpp"
#include "redblue/schedule/score_tiles_forward.hpp"

using namespace redblue;

// MachineFace turns the words of a schedule (load, alloc, compute, store, ...) into these seven primitives. A machine
// without data ignores tiles: what matters here is every block that comes or goes.
class CacheLines : public MachineFace<CacheLines> {
 public:
  explicit CacheLines(std::array<index_t, kSlowArrays> row_words) : row_words_(row_words) {}

  index_t open(Shape, Layout) { return 0; }
  void close(index_t, Shape) {}
  void read(const Arg&, const Block& b) { touch(b); }
  void write(const Block& b, const Arg&) { touch(b); }
  void run(const auto&, std::span<const Arg> args) {
    for (const Arg& a : args)  // tiles are resident: they cost nothing
      if (a.kind == Arg::Kind::stream) touch(a.block);
  }
  void modify(const auto& kernel, std::span<const Arg> args) { run(kernel, args); }
  void each(index_t n, const auto& body) {
    for (index_t i = 0; i < n; ++i) body(*this, i);
  }
  index_t lines() const { return lines_; }

 private:
  void touch(const Block& b) {
    const index_t row_words = row_words_[index_of(b.array)];
    for (index_t r = b.row; r < b.row + b.shape.rows; ++r) {
      const index_t first = r * row_words + b.col;
      lines_ += (first + b.shape.cols - 1) / 16 - first / 16 + 1;  // 16 words of 4 bytes per line
    }
  }
  std::array<index_t, kSlowArrays> row_words_;
  index_t lines_ = 0;
};

template <class S>
index_t lines_of(const schedule::Forward& x, typename S::Tiling t) {
  CacheLines machine({x.shape.d, x.shape.d, x.shape.d_v, x.shape.d_v, 1, x.shape.n_k});
  S::run(machine, x, t);  // the same loops that are counted, checked and run elsewhere
  const Words words = S::io(x.shape, t).total();
  std::printf("%-12s %9s words %9ld lines: %4.1f words a line\n", std::string(S::name).c_str(), words.str().c_str(),
              static_cast<long>(machine.lines()), words.to_double() / static_cast<double>(machine.lines()));
  return machine.lines();
}

int main() {
  const schedule::Forward x({256, 256, 64, 64}, 0.125);  // n_q, n_k, d, d_v; scale
  const index_t flash = lines_of<schedule::FlashForward>(x, {7, 1});
  const index_t tiles = lines_of<schedule::ScoreTilesForward>(x, {24, 38});
  // score_tiles moves half the words, but one word a line: for this memory, flash is the better choice.
  const Words rows = schedule::FlashForward::io(x.shape, {7, 1}).total() - 256;  // all but lse comes in whole rows,
  return flash == rows.to_index() / 16 + 256 && tiles > 4 * flash ? 0 : 1;       // lse one word at a time here
}
