#include "module.hpp"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cmath>
#include <exception>
#include <optional>
#include <string>

#include "dlpack.hpp"
#include "plan.hpp"
#include "redblue/attention.hpp"
#include "redblue/fastest.hpp"
#include "redblue/files.hpp"
#include "redblue/hardware.hpp"
#include "redblue/plan.hpp"
#include "redblue/problem.hpp"
#include "redblue/threads.hpp"
#include "redblue/version.hpp"
#include "regimes.hpp"
#include "statistics.hpp"

namespace redblue::python {

namespace {

void raise(const char* type, const char* message) {
  const nb::object found = nb::module_::import_("redblue._errors").attr(type);
  PyErr_SetString(found.ptr(), message);
}

/// (path, byte, type, shape, strides in elements, has it the other byte order?)
nb::tuple tuple_of(const file::TensorPlace& p) {
  const auto numbers = [](const std::vector<index_t>& list) {
    nb::list all;
    for (const index_t n : list) all.append(n);
    return nb::tuple(all);
  };
  return nb::make_tuple(p.path, p.offset, std::string(name_of(p.dtype)), numbers(p.shape), numbers(p.strides),
                        p.swap_bytes);
}

}  // namespace

nb::object integer_of(Words words) { return nb::steal(PyLong_FromString(words.str().c_str(), nullptr, 10)); }
nb::object finite_or_none(double x) { return std::isfinite(x) ? nb::object(nb::float_(x)) : nb::none(); }

void add_places(nb::module_& m) {
  m.def(
      "npy_place", [](const std::string& path) { return tuple_of(file::npy_place(path)); }, nb::arg("path"),
      "Where the tensor of a .npy file lies: path, byte, type, shape, strides in elements, other byte order?");
  m.def(
      "safetensors_place",
      [](const std::string& path, const std::string& name) { return tuple_of(file::safetensors_place(path, name)); },
      nb::arg("path"), nb::arg("name"), "Where a tensor of a safetensors file lies, likewise.");
}

void add_errors(nb::module_& /*m*/) {
  nb::register_exception_translator([](const std::exception_ptr& p, void* /*payload*/) {
    try {
      std::rethrow_exception(p);
    } catch (const InvalidProblem& e) {
      raise("InvalidProblem", e.what());
    } catch (const Unsupported& e) {
      raise("Unsupported", e.what());
    } catch (const CapacityError& e) {
      raise("CapacityError", e.what());
    } catch (const MemoryError& e) {
      raise("NotEnoughMemory", e.what());
    } catch (const IoError& e) {
      raise("FileError", e.what());
    } catch (const Error& e) {
      raise("Error", e.what());
    }
  });
}

}  // namespace redblue::python

NB_MODULE(_core, m) {
  namespace nb = nanobind;
  using namespace redblue;
  m.doc() = "redblue's C++ library, as redblue/*.py calls it. Not an interface of its own.";
  m.attr("version") = std::string(kVersion);
  m.def(
      "pool_size", [] { return default_pool().size(); },
      "Threads of the pool of this process: REDBLUE_THREADS, or the CPUs.");
  m.def(
      "asked_threads", [](index_t n) { return asked_threads("threads = ", n, python::kMostThreads); },
      "The number; an error where no pool has that many threads.");
  m.def("use_openmp", &python::use_openmp,
        "Runs take the threads of OpenMP in place of their own, in this process and if it has them.");
  m.def("read_by_exchange", &python::read_by_exchange, nb::arg("type"),
        "From now on tensors of exactly this type are read by DLPack's C functions. False: the type has none.");
  m.def(
      "bytes_from",
      [](const std::string& text) -> std::optional<index_t> {
        const auto bytes = bytes_from(text);
        return bytes ? std::optional(bytes->to_index()) : std::nullopt;
      },
      nb::arg("text"), "The bytes that a text says, such as 64KiB; None where it says none.");
  m.attr("bytes_wanted") = std::string(kBytesWanted);
  m.def(
      "layouts",
      [] {
        nb::dict all;
        for (const std::string& name : Dimensions::names()) all[name.c_str()] = Dimensions(name).tokens_first();
        return all;
      },
      "The names of an order of dimensions, outermost first: do tokens come before heads?");
  m.attr("layout_choices") = Dimensions::choices();
  m.def("has_hardware_file", &has_hardware_file,
        "Has `redblue doctor`, or a first plan, left a measurement of this machine?");
  m.def("hardware_path", &default_hardware_path,
        "Where that measurement is kept; empty where there is no home directory.");
  m.def(
      "measure_machine",
      [](const std::string& path) {
        const Hardware& hardware = this_machine();
        if (!path.empty()) save_hardware(hardware, path);
      },
      nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
      "Measures this machine, in a moment, and keeps the result in `path`, unless that is empty.");
  m.def(
      "is_of_another_machine",
      [] {
        const Hardware& here = this_machine();
        return here.cpu != describe_hardware().cpu;
      },
      nb::call_guard<nb::gil_scoped_release>(),
      "Is the measurement that plans of least time take of another processor?");
  m.def(
      "bf16_is_faster",
      [] {
        const auto peak = [](DType type) { return model::rates_of(this_machine(), best_isa(), type).macs; };
        return peak(DType::bf16) >= peak(DType::f32);
      },
      nb::call_guard<nb::gil_scoped_release>(),
      "Are products of bf16 no slower than those of fp32, as this machine was measured? Some have both, and the first "
      "at half the speed.");
  nb::set_leak_warnings(false);  // plans are kept until the process ends
  python::add_errors(m);
  python::add_places(m);
  python::add_problem(m);
  python::add_patterns(m);
  python::add_recognition(m);
  python::add_plan(m);
  python::add_regimes(m);
  python::add_xla(m);
  python::add_merge(m);
  python::add_known(m);
  python::add_ranks(m);
  python::add_statistics(m);
}
