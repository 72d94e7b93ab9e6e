#pragma once
#include <functional>
#include <memory>

#include "redblue/core/data_machine.hpp"
#include "redblue/kernel/bodies.hpp"

namespace redblue::machine {

/// A machine chosen at run time: the same words behind one virtual call each. A schedule instantiated once for Any runs
/// on every machine; the compiled-in machines are faster.
class Any : public MachineFace<Any> {
 public:
  template <class M>
    requires(!std::same_as<M, Any>)
  explicit Any(M& m) : backend_(std::make_unique<Over<M>>(m)) {}

  index_t open(SlowArray array, Shape s, Layout layout) { return backend_->open(array, s, layout); }
  void close(index_t depth, SlowArray array, Shape s) { backend_->close(depth, array, s); }
  void read(const Arg& tile, const Block& b) { backend_->read(tile, b); }
  void write(const Block& b, const Arg& tile) { backend_->write(b, tile); }
  template <class K>
  void run(const K& k, std::span<const Arg> args) {
    backend_->run(kernel::erase(k), args);
  }
  template <class K>
  void modify(const K& k, std::span<const Arg> args) {
    backend_->modify(kernel::erase(k), args);
  }
  index_t tell(Question question, const Arg& word, index_t worst) { return backend_->tell(question, word, worst); }
  template <class Body>
  void each(index_t n, const Body& body) {
    backend_->each(*this, n, [&](Any& worker, index_t i) { body(worker, i); });
  }
  int workers() const { return backend_->workers(); }
  int worker() const { return backend_->worker(); }

 private:
  struct Backend {
    Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;
    virtual ~Backend() = default;
    virtual index_t open(SlowArray array, Shape s, Layout layout) = 0;
    virtual void close(index_t depth, SlowArray array, Shape s) = 0;
    virtual void read(const Arg& tile, const Block& b) = 0;
    virtual void write(const Block& b, const Arg& tile) = 0;
    virtual void run(const kernel::AnyKernel& k, std::span<const Arg> args) = 0;
    virtual void modify(const kernel::AnyKernel& k, std::span<const Arg> args) = 0;
    virtual index_t tell(Question question, const Arg& word, index_t worst) = 0;
    virtual void each(Any& self, index_t n, const std::function<void(Any&, index_t)>& body) = 0;
    virtual int workers() const = 0;
    virtual int worker() const = 0;
  };

  template <class M>
  struct Over final : Backend {
    explicit Over(M& m) : m(m) {}
    index_t open(SlowArray array, Shape s, Layout layout) override { return m.open(array, s, layout); }
    void close(index_t depth, SlowArray array, Shape s) override { m.close(depth, array, s); }
    void read(const Arg& tile, const Block& b) override { m.read(tile, b); }
    void write(const Block& b, const Arg& tile) override { m.write(b, tile); }
    void run(const kernel::AnyKernel& k, std::span<const Arg> args) override { m.run(k, args); }
    void modify(const kernel::AnyKernel& k, std::span<const Arg> args) override { m.modify(k, args); }
    index_t tell(Question question, const Arg& word, index_t worst) override {
      if constexpr (DataMachine<M>)
        return m.tell(question, word, worst);
      else
        return worst;  // it says nothing of data
    }
    void each(Any& self, index_t n, const std::function<void(Any&, index_t)>& body) override {
      m.each(n, [&](M& worker, index_t i) {
        if (&worker == &m) return body(self, i);
        Any any(worker);
        body(any, i);
      });
    }
    int workers() const override { return m.workers(); }
    int worker() const override { return m.worker(); }
    M& m;
  };

  std::unique_ptr<Backend> backend_;
};

}  // namespace redblue::machine
