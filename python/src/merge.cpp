#include <fmt/format.h>

#include "module.hpp"
#include "redblue/attention.hpp"
#include "run.hpp"

namespace redblue::python {

namespace {

/// Two states of attention become one, which is written to the first.
void merge(nb::handle o, nb::handle lse, nb::handle more_o, nb::handle more_lse, bool tokens_first, int threads) {
  Buffers buffers;
  const auto tensor = [&](nb::handle array, SlowArray a, Form form, bool writable) {
    return tensor_of(array, form, a, writable, buffers);
  };
  const Form form = tokens_first ? Form::tokens_first : Form::heads_first;
  const Outputs into{tensor(o, SlowArray::O, form, true), tensor(lse, SlowArray::lse, Form::rows, true)};
  const MergeInputs part{tensor(more_o, SlowArray::Og, form, false),
                         tensor(more_lse, SlowArray::lse_g, Form::rows, false)};
  RunOptions how;
  how.compute = into.o.dtype == DType::f64 ? DType::f64 : DType::f32;
  how.pool = &pool_of(threads);
  unlocked([&] { return redblue::merge(part, into, {}, how); });
}

}  // namespace

void add_merge(nb::module_& m) {
  m.def("merge", &merge, nb::arg("o"), nb::arg("lse"), nb::arg("more_o"), nb::arg("more_lse"), nb::arg("tokens_first"),
        nb::arg("threads"), "Attention to two sets of keys becomes attention to both, in the first arrays.");
}

}  // namespace redblue::python
