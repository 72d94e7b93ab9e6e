// expect: constraints not satisfied|no matching function
#include "redblue/machines/counting.hpp"
#include "redblue/methods/schedules/polynomial_rows.hpp"

// A machine like any other that answers nothing about the data.
struct Silent : redblue::MachineFace<Silent> {
  static redblue::index_t open(redblue::SlowArray, redblue::Shape, redblue::Layout) { return 0; }
  static void close(redblue::index_t, redblue::SlowArray, redblue::Shape) {}
  static void read(const redblue::Arg&, const redblue::Block&) {}
  static void write(const redblue::Block&, const redblue::Arg&) {}
  template <class K>
  static void run(const K&, std::span<const redblue::Arg>) {}
  template <class K>
  static void modify(const K&, std::span<const redblue::Arg>) {}
  template <class Body>
  void each(redblue::index_t n, const Body& body) {
    for (redblue::index_t i = 0; i < n; ++i) body(*this, i);
  }
};
static_assert(redblue::Machine<Silent>);

#ifdef REDBLUE_WRONG
using Machine = Silent;
#else
using Machine = redblue::machine::Counting;
#endif

void count(Machine& m, const redblue::schedule::ForwardOperands& x) {
  redblue::schedule::PolynomialRowsForward::run(m, x, {1, 1, 1});
}
