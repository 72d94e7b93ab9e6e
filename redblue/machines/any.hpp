#pragma once
#include "redblue/kernels/kinds.hpp"
#include "redblue/language/data_machine.hpp"
#include "redblue/language/function_ref.hpp"

namespace redblue::machine {

/// A machine chosen at run time: the same words, a call through a pointer each. It must outlive this. A schedule is
/// compiled once, for Any, and runs on every machine; docs/machines.md says what that costs.
class Any : public MachineFace<Any> {
 public:
  template <class M>
    requires(!std::same_as<M, Any>)
  explicit Any(M& m) : machine_(&m), calls_(kCalls<M>) {}

  index_t open(SlowArray array, Shape s, Layout layout) { return calls_.open(machine_, array, s, layout); }
  void close(index_t depth, SlowArray array, Shape s) { calls_.close(machine_, depth, array, s); }
  void store_hint(index_t depth, const Block& b) { calls_.store_hint(machine_, depth, b); }
  void read_hint(const Block& b) { calls_.read_hint(machine_, b); }
  void read(const Arg& tile, const Block& b) { calls_.read(machine_, tile, b); }
  void write(const Block& b, const Arg& tile) { calls_.write(machine_, b, tile); }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    calls_.run(machine_, kernel::erase(k), args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    calls_.modify(machine_, kernel::erase(k), args);
  }
  index_t read_index(Question question, const Arg& word, index_t worst) {
    return calls_.read_index(machine_, question, word, worst);
  }
  template <class Body>
  void each(index_t n, const Body& body) {
    calls_.each(machine_, *this, n, body);
  }
  template <class Body>
  void in_turn(index_t n, const Body& body) {
    calls_.in_turn(machine_, n, body);
  }
  int workers() const { return calls_.workers(machine_); }
  int worker() const { return calls_.worker(machine_); }

 private:
  using Body = FunctionRef<void(Any&, index_t)>;

  /// What a type of machines does. The first argument is the machine.
  struct Calls {
    index_t (*open)(void*, SlowArray array, Shape s, Layout layout);
    void (*close)(void*, index_t depth, SlowArray array, Shape s);
    void (*store_hint)(void*, index_t depth, const Block& b);
    void (*read_hint)(void*, const Block& b);
    void (*read)(void*, const Arg& tile, const Block& b);
    void (*write)(void*, const Block& b, const Arg& tile);
    void (*run)(void*, const kernel::AnyKernel& k, std::span<const Arg> args);
    void (*modify)(void*, const kernel::AnyKernel& k, std::span<const Arg> args);
    index_t (*read_index)(void*, Question question, const Arg& word, index_t worst);
    void (*each)(void*, Any& self, index_t n, Body body);
    void (*in_turn)(void*, index_t n, FunctionRef<void(index_t)> body);
    int (*workers)(const void*);
    int (*worker)(const void*);
  };

  template <class M>
  static M& of(void* m) {
    return *static_cast<M*>(m);
  }
  template <class M>
  static index_t read_index_of(void* m, Question question, const Arg& word, index_t worst) {
    if constexpr (DataMachine<M>)
      return of<M>(m).read_index(question, word, worst);
    else
      return worst;  // it says nothing of data
  }
  template <class M>
  static void each_of(void* m, Any& self, index_t n, Body body) {
    of<M>(m).each(n, [&](M& worker, index_t i) {
      if (&worker == m) return body(self, i);
      Any any(worker);
      body(any, i);
    });
  }
  template <class M>
  static constexpr Calls kCalls{
      .open = [](void* m, SlowArray array, Shape s, Layout layout) { return of<M>(m).open(array, s, layout); },
      .close = [](void* m, index_t depth, SlowArray array, Shape s) { of<M>(m).close(depth, array, s); },
      .store_hint = [](void* m, index_t depth, const Block& b) { of<M>(m).store_hint(depth, b); },
      .read_hint = [](void* m, const Block& b) { of<M>(m).read_hint(b); },
      .read = [](void* m, const Arg& tile, const Block& b) { of<M>(m).read(tile, b); },
      .write = [](void* m, const Block& b, const Arg& tile) { of<M>(m).write(b, tile); },
      .run = [](void* m, const kernel::AnyKernel& k, std::span<const Arg> args) { of<M>(m).run(k, args); },
      .modify = [](void* m, const kernel::AnyKernel& k, std::span<const Arg> args) { of<M>(m).modify(k, args); },
      .read_index = read_index_of<M>,
      .each = each_of<M>,
      .in_turn = [](void* m, index_t n, FunctionRef<void(index_t)> body) { of<M>(m).in_turn(n, body); },
      .workers = [](const void* m) { return static_cast<const M*>(m)->workers(); },
      .worker = [](const void* m) { return static_cast<const M*>(m)->worker(); },
  };

  void* machine_;
  const Calls& calls_;
};

}  // namespace redblue::machine
