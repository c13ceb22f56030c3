// How threads share the phases of one call, and wait for each other.
//
// A phase is a number of chunks. Every thread has a range of them, takes from its own first and
// then from the others'; it goes on once all chunks are done. So a thread that the system has
// put aside between two chunks holds nobody up, and catches up by finding nothing left to do.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#ifdef _OPENMP
#include <omp.h>
#endif
#if defined(__x86_64__)
#include <immintrin.h>
#endif

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

struct alignas(64) Counter {
  std::atomic<int64_t> value{0};
};

class Team {
 public:
  Team(int threads, int phases)
      : threads_(threads), counters_(new Counter[size_t(phases) * (threads + 1)]) {}

  int threads() const { return threads_; }

  template <class Body>
  void each(int phase, int thread, int64_t chunks, Body body) {
    Counter* counter = &counters_[size_t(phase) * (threads_ + 1)];
    int64_t mine = 0;
    for (int step = 0; step < threads_; step++) {
      int owner = (thread + step) % threads_;
      int64_t first = chunks * owner / threads_, last = chunks * (owner + 1) / threads_;
      while (true) {
        int64_t chunk = first + counter[1 + owner].value.fetch_add(1, std::memory_order_relaxed);
        if (chunk >= last) break;
        body(chunk);
        mine++;
      }
    }
    counter->value.fetch_add(mine, std::memory_order_acq_rel);
    wait(counter, chunks);
  }

 private:
  static void wait(Counter* counter, int64_t chunks) {
    for (int spins = 0; counter->value.load(std::memory_order_acquire) < chunks; spins++) {
      relax();
#ifdef _OPENMP
      // the other thread may be waiting for this very core
      if (spins > 20000) sched_yield();
#endif
    }
  }

  int threads_;
  std::unique_ptr<Counter[]> counters_;
};

// One thread's way through the phases of a call; all threads take the same way.
class Worker {
 public:
  Worker(Team& team, int thread) : team_(team), thread_(thread) {}

  int thread() const { return thread_; }
  int threads() const { return team_.threads(); }

  template <class Body>
  void each(int64_t chunks, Body body) {
    team_.each(phase_++, thread_, chunks, body);
  }

 private:
  Team& team_;
  int thread_;
  int phase_ = 0;
};

// Runs body(worker) on up to `threads` threads: torch's own, where both use OpenMP.
template <class Body>
void run_team(int threads, int phases, Body body) {
#ifdef _OPENMP
  // the counters lie by the number asked for; with fewer threads the others' chunks are taken
  Team team(threads, phases);
#pragma omp parallel num_threads(threads)
  {
    Worker worker(team, omp_get_thread_num());
    body(worker);
  }
#else
  (void)threads;
  Team team(1, phases);
  Worker worker(team, 0);
  body(worker);
#endif
}
