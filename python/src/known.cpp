#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "arrays.hpp"
#include "dlpack.hpp"
#include "module.hpp"
#include "run.hpp"

namespace redblue::python {

namespace {

/// The types of arrays whose calls are remembered, and what Python knows of them.
struct Types {
  PyObject* array = nullptr;     ///< numpy.ndarray; tensors are those that is_exchanged() knows
  PyObject* profiler = nullptr;  ///< the names of torch.autograd.profiler: null until torch is there
  PyObject* is_on = nullptr;     ///< the name of the flag among them
};
Types types;  // written and read by threads that hold the GIL

/// Is torch's profiler on? Then a run gets a range of its own, in Python.
bool is_profiled() { return types.profiler != nullptr && PyDict_GetItem(types.profiler, types.is_on) == Py_True; }

/// Bytes that say what a call is.
class Key {
 public:
  template <class T>
  void add(T x) {
    static_assert(std::is_trivially_copyable_v<T>);
    add_bytes(&x, sizeof x);
  }
  void add_text(std::string_view text) {
    add(text.size());
    add_bytes(text.data(), text.size());
  }
  /// It is None where it is too long to be kept.
  nb::object bytes() const {
    if (size_ > bytes_.size()) return nb::none();
    return nb::steal(PyBytes_FromStringAndSize(bytes_.data(), static_cast<Py_ssize_t>(size_)));
  }

 private:
  void add_bytes(const void* from, std::size_t n) {
    if (size_ + n <= bytes_.size()) std::memcpy(bytes_.data() + size_, from, n);
    size_ += n;
  }

  std::array<char, 1024> bytes_;
  std::size_t size_ = 0;
};

/// Why a call has no key: what it holds is for Python to read, or to refuse.
struct NoKey {};

/// The arrays of a call as they were given, in the order in which they were read.
class ArraysGiven {
 public:
  void read(SlowArray name, nb::handle array, Key& key) {
    const bool of_torch = is_exchanged(array);
    if (size_ == 0) of_torch_ = of_torch;
    if (of_torch != of_torch_ || !(of_torch || array.type().ptr() == types.array)) throw NoKey();
    if (of_torch && is_negated(array)) throw NoKey();
    const Given g = of_torch ? from_exchange(array, name) : from_buffer(array, name, false, buffers);
    if (!of_torch && g.dtype == DType::bf16) throw NoKey();  // integers of 16 bits
    const std::size_t n = g.dimensions;
    key.add(static_cast<std::uint8_t>(g.dtype));
    key.add(static_cast<std::uint8_t>(n));
    key.add(n == 0 || g.strides[n - 1] == 1 || g.shape[n - 1] == 1);  // the arithmetic of bf16 depends on it
    for (std::size_t i = 0; i < n; ++i) key.add(g.shape[i]);
    list_[size_++] = {name, array, g};
  }
  bool of_torch() const { return of_torch_; }

  struct One {
    SlowArray name;
    nb::handle array;
    Given given;
  };
  std::span<const One> list() const { return {list_.data(), size_}; }
  Buffers buffers;

 private:
  /// A negated view has the other sign in memory.
  static bool is_negated(nb::handle tensor) {
    static PyObject* const name = PyUnicode_InternFromString("is_neg");
    return nb::object(tensor.attr(nb::handle(name))()).ptr() != Py_False;
  }

  std::array<One, 9> list_;
  std::size_t size_ = 0;
  bool of_torch_ = false;
};

/// Options that are arrays, by the names that Python has for them.
std::optional<SlowArray> array_of_option(std::string_view name) {
  if (name == "bias") return SlowArray::bias;
  if (name == "alibi_slopes") return SlowArray::slopes;
  if (name == "sinks") return SlowArray::sinks;
  return std::nullopt;
}

std::string_view utf8_of(PyObject* text) {
  Py_ssize_t size = 0;
  const char* const data = PyUnicode_AsUTF8AndSize(text, &size);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<std::size_t>(size)};
}

/// A plain value of exactly one of these types: 300.0 is no 300.
void add_value(PyObject* x, Key& key) {
  if (x == Py_None) return key.add('n');
  if (PyBool_Check(x) != 0) return key.add(x == Py_True ? 't' : 'f');
  if (PyLong_CheckExact(x) != 0) {
    int overflow = 0;
    const long long value = PyLong_AsLongLongAndOverflow(x, &overflow);
    if (overflow != 0) throw NoKey();
    key.add('i');
    return key.add(value);
  }
  if (PyFloat_CheckExact(x) != 0) {
    key.add('d');
    return key.add(PyFloat_AsDouble(x));
  }
  if (PyUnicode_CheckExact(x) != 0) {
    key.add('s');
    return key.add_text(utf8_of(x));
  }
  if (PyTuple_CheckExact(x) == 0) throw NoKey();
  const Py_ssize_t n = PyTuple_Size(x);
  key.add('(');
  key.add(n);
  for (Py_ssize_t i = 0; i < n; ++i) add_value(PyTuple_GetItem(x, i), key);
}

/// What a call gives: the tuple (q, k, v, return_lse), of a backward pass (q, k, v, False, do, o, lse), and its
/// options.
struct AskedCall {
  nb::handle given, options;
  int threads;  ///< where no option says

  nb::handle operator[](Py_ssize_t i) const {
    const nb::handle one = PyTuple_GetItem(given.ptr(), i);
    if (!one.is_valid()) throw nb::python_error();
    return one;
  }
  /// Reads the arrays.
  nb::object key(ArraysGiven& arrays) const {
    if (PyBool_Check((*this)[3].ptr()) == 0 || PyDict_CheckExact(options.ptr()) == 0) return nb::none();
    Key key;
    try {
      arrays.read(SlowArray::Q, (*this)[0], key);
      arrays.read(SlowArray::K, (*this)[1], key);
      arrays.read(SlowArray::V, (*this)[2], key);
      const bool backward = PyTuple_Size(given.ptr()) > 4;
      key.add(backward);
      if (backward) {
        arrays.read(SlowArray::dO, (*this)[4], key);
        arrays.read(SlowArray::O, (*this)[5], key);
        arrays.read(SlowArray::lse, (*this)[6], key);
      }
      key.add(arrays.of_torch());
      key.add((*this)[3].ptr() == Py_True);
      key.add(threads);
      Py_ssize_t at = 0;
      PyObject *name = nullptr, *value = nullptr;
      while (PyDict_Next(options.ptr(), &at, &name, &value) != 0) {
        const std::string_view text = utf8_of(name);
        const std::optional<SlowArray> array = array_of_option(text);
        if (array && value == Py_None) continue;
        key.add_text(text);
        if (array)
          arrays.read(*array, value, key);
        else
          add_value(value, key);
      }
    } catch (const NoKey&) {
      return nb::none();
    } catch (const nb::builtin_exception&) {  // arrays that Python knows how to read, or how to refuse
      return nb::none();
    } catch (const InvalidProblem&) {
      return nb::none();
    }
    return key.bytes();
  }
};

/// A call that came before: its plan, and how its outputs are made.
struct KnownCall {
  static constexpr std::size_t kMostOutputs = 3;  // dq, dk and dv
  struct Output {
    SlowArray name;
    nb::object make;  ///< of no arguments; null: empty(like, shape, type) is called
    SlowArray like;
    nb::object shape, type;
    bool as_like;  ///< has it the shape and the type of `like`? Then empty_like(like) does if that lies in order
  };
  std::shared_ptr<NamedPlan> plan;
  bool tokens_first;
  nb::object empty, empty_like;  ///< of the family of its arrays
  nb::object given;              ///< given(out, shape): what is written of an output that a caller gives
  std::vector<Output> outputs;

  nb::object made(const Output& output, const ArraysGiven::One& like) const {
    if (output.make.is_valid()) return output.make();
    if (output.as_like && in_order(like.given)) return empty_like(like.array);
    return empty(like.array, output.shape, output.type);
  }

 private:
  /// Do its dimensions lie one inside the other, without gaps?
  static bool in_order(const Given& g) {
    index_t stride = 1;
    for (std::size_t i = g.dimensions; i-- > 0;) {
      if (g.strides[i] != stride) return false;
      stride *= g.shape[i];
    }
    return true;
  }
};

/// Runs the call. Its outputs are made here, the first but where the tuple `out` holds one.
nb::object run_on_arrays(const KnownCall& call, ArraysGiven& arrays, nb::handle out) {
  const Problem& problem = call.plan->plan.problem;
  Tensors tensors;
  for (const ArraysGiven::One& one : arrays.list())
    tensors[one.name] = tensor_of(one.given, form_of(one.name, call.tokens_first), one.name);
  std::array<nb::object, KnownCall::kMostOutputs> made;
  std::size_t n = 0;
  for (const KnownCall::Output& output : call.outputs) {
    const auto like = std::ranges::find(arrays.list(), output.like, &ArraysGiven::One::name);
    const bool is_given = n == 0 && PyTuple_Size(out.ptr()) == 1;
    made[n] = is_given ? nb::borrow(PyTuple_GetItem(out.ptr(), 0)) : call.made(output, *like);
    const nb::object written = is_given ? call.given(made[n], output.shape) : made[n];
    ++n;
    tensors[output.name] = tensor_of(written, form_of(output.name, call.tokens_first), output.name,
                                     is_written(problem, output.name), arrays.buffers);
  }
  run_tensors(*call.plan, tensors, 0);
  if (n == 1) return made[0];
  const nb::object all = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(n)));
  for (std::size_t i = 0; i < n; ++i) PyTuple_SetItem(all.ptr(), static_cast<Py_ssize_t>(i), made[i].release().ptr());
  return all;
}

nb::object run_known(nb::handle calls, nb::handle given, nb::handle options, int threads, nb::handle out) {
  ArraysGiven arrays;
  const nb::object key = AskedCall{given, options, threads}.key(arrays);
  if (key.is_none() || (arrays.of_torch() && is_profiled())) return nb::none();
  PyObject* const found = PyDict_GetItem(calls.ptr(), key.ptr());
  if (found == nullptr) return nb::none();
  const nb::object kept = nb::borrow(found);  // another thread may let go of it
  return run_on_arrays(nb::cast<const KnownCall&>(kept), arrays, out);
}

}  // namespace

void add_known(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<KnownCall>(m, "Known", "A call that came before.")
      .def(
          "__init__",
          [](KnownCall* self, std::shared_ptr<NamedPlan> plan, bool tokens_first, nb::object empty,
             nb::object empty_like, nb::object given) {
            new (self)
                KnownCall{std::move(plan), tokens_first, std::move(empty), std::move(empty_like), std::move(given), {}};
          },
          "plan"_a, "tokens_first"_a, "empty"_a, "empty_like"_a, "given"_a)
      .def(
          "add_output",
          [](KnownCall& self, const std::string& name, const std::string& like, nb::object make, nb::object shape,
             nb::object type, bool as_like) {
            const auto named = [](const std::string& wanted) {
              for (const SlowArray a : kRunArrays)
                if (name_of(a) == wanted) return a;
              throw nb::value_error(wanted.c_str());
            };
            if (self.outputs.size() == KnownCall::kMostOutputs) throw nb::value_error(name.c_str());
            self.outputs.push_back({named(name), make.is_none() ? nb::object() : std::move(make), named(like),
                                    std::move(shape), std::move(type), as_like});
          },
          "name"_a, "like"_a, "make"_a.none(), "shape"_a, "type"_a, "as_like"_a);
  m.def(
      "key_of_call",
      [](nb::handle given, nb::handle options, int threads) -> nb::object {
        ArraysGiven arrays;
        return AskedCall{given, options, threads}.key(arrays);
      },
      "given"_a, "options"_a, "threads"_a,
      "What decides how a call of (q, k, v, return_lse), or (q, k, v, False, do, o, lse), runs, as bytes; None where "
      "more "
      "than its types, sizes and plain options does.");
  // Without names of arguments: to look for them takes time in each call.
  m.def("run_known", &run_known,
        "(calls, given, options, threads, out): runs such a call, of `calls` by their keys, and returns its outputs; "
        "`out` is a tuple of the first, or empty. None where it is not among them, or has no key.");
  m.def(
      "remember_types",
      [](nb::object array, nb::object profiler) {
        if (!array.is_none()) types.array = array.release().ptr();
        if (!profiler.is_none()) {
          types.is_on = PyUnicode_InternFromString("_is_profiler_enabled");
          types.profiler = profiler.release().ptr();
        }
      },
      "array"_a.none(), "profiler"_a.none(),
      "The type of NumPy's arrays, and the names of torch's profiler: for run_known.");
}

}  // namespace redblue::python
