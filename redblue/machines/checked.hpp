#pragma once
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "redblue/kernels/kinds.hpp"
#include "redblue/language/error.hpp"
#include "redblue/machines/passing.hpp"

namespace redblue::machine {

/// The referee of the rules of the game, word by word: no read of a word never written, kernels read initialised words
/// only, shapes agree, inputs stay as they are, tiles that kernels only read (is_only_read) are loaded whole and by
/// nothing else changed, tiles leave in reverse order, at most M words resident. Throws RuleError or CapacityError.
/// Slow (a flag per word): for tests and for authors of schedules.
class Referee {
 public:
  explicit Referee(Words M) : M_(M) {}
  void input(const SlowMatrix& m) { declare(m, true); }
  void output(const SlowMatrix& m) { declare(m, false); }
  /// An output that is given: read, and written where it changes.
  void given_output(const SlowMatrix& m) { declare(m, false, false, true); }
  void workspace(const SlowMatrix& m) { declare(m, false, false); }

  void open(index_t depth, Shape s, Layout layout = Layout::row_major);
  /// Never throws, for destructors call it: a tile that leaves out of order is reported by finish().
  void close(index_t depth, Shape s) noexcept;
  void read(const Arg& tile, const Block& b);
  void write(const Block& b, const Arg& tile);
  void check(const kernel::AnyKernel& k, std::span<const Arg> args);
  /// A number is told of one word that holds something.
  void read_index(const Arg& word);
  /// Every output written, fast memory empty, tiles evicted in order.
  void finish() const;

 private:
  struct Matrix {
    Shape shape;
    bool input;
    bool must_be_written;
    std::vector<bool> known;
  };
  struct Resident {
    Shape shape;
    Layout layout;
    std::vector<bool> known;
  };
  using Key = std::pair<SlowArray, index_t>;

  void declare(const SlowMatrix& m, bool input, bool must_be_written = true, bool known = false);
  Matrix& matrix(const Block& b);
  Resident& resident(const Arg& tile);
  void require_known(const Arg& a, std::string_view who);
  void mark_known(const Arg& a, std::string_view who);
  void require_room(index_t passing) const;

  Words M_;
  index_t used_ = 0;
  bool in_order_ = true;
  std::map<Key, Matrix> slow_;
  std::vector<Resident> tiles_;
};

/// Referees what passes through another machine, one round of an `each` after another.
template <class Base>
class Checked : public Passing<Checked<Base>, Base> {
  using Passes = Passing<Checked, Base>;

 public:
  Checked(Base& base, Referee& referee) : Passes(base), referee_(referee) {}

  index_t open(SlowArray array, Shape s, Layout layout) {
    referee_.open(depth_, s, layout);
    Passes::open(array, s, layout);
    return depth_++;
  }
  void close(index_t depth, SlowArray array, Shape s) {
    referee_.close(depth, s);
    Passes::close(depth, array, s);
    --depth_;
  }
  void read(const Arg& tile, const Block& b) {
    referee_.read(tile, b);
    Passes::read(tile, b);
  }
  void write(const Block& b, const Arg& tile) {
    referee_.write(b, tile);
    Passes::write(b, tile);
  }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    kernel::for_parts(k, args,
                      [&](const auto& part, std::span<const Arg> a) { referee_.check(kernel::erase(part), a); });
    Passes::run(k, args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    referee_.check(kernel::erase(k), args);
    Passes::modify(k, args);
  }
  index_t read_index(Question question, const Arg& word, index_t worst)
    requires DataMachine<Base>
  {
    referee_.read_index(word);
    return Passes::read_index(question, word, worst);
  }

 private:
  Referee& referee_;
  index_t depth_ = 0;
};

}  // namespace redblue::machine
