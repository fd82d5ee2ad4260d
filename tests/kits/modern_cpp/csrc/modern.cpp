// Uses what a newer libstdc++ and glibc bring, all of which must run on an older system.
#include <sys/stat.h>
#include <torch/csrc/stable/tensor.h>

#include <charconv>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <future>
#include <iostream>
#include <memory_resource>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

// What <iostream> of GCC 13 says, for compilers that are older.
__asm__(".globl _ZSt21ios_base_library_initv");

namespace {

double from_text() {
  const std::string text = "2.5";
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

double from_threads() {
  std::mutex mutex;
  std::condition_variable ready;
  double value = 0;
  std::thread writer([&] {
    std::lock_guard<std::mutex> hold(mutex);
    value = std::async(std::launch::async, [] { return 3.0; }).get();
    ready.notify_one();
  });
  std::unique_lock<std::mutex> hold(mutex);
  ready.wait(hold, [&] { return value != 0; });
  hold.unlock();
  writer.join();
  return value;
}

double from_files() {
  struct stat status;
  const bool there = stat("/", &status) == 0 && std::filesystem::is_directory("/");
  return there && std::filesystem::path("/a/b").filename() == "b" ? 4.0 : 0.0;
}

double from_memory() {
  std::pmr::monotonic_buffer_resource pool;
  std::pmr::vector<double> values({1.0, 2.0}, &pool);
  return values[0] + values[1];
}

double from_words() {
  std::ostringstream stream;
  stream << "value " << std::stoi("42");
  const std::string text = std::move(stream).str();
  std::smatch found;
  return std::regex_match(text, found, std::regex("value (\\d+)")) ? std::stod(found[1]) : 0.0;
}

double from_clocks() {
  using namespace std::chrono_literals;
  std::mutex mutex;
  std::condition_variable never;
  std::unique_lock<std::mutex> hold(mutex);
  const auto begin = std::chrono::steady_clock::now();
  const bool late = !never.wait_for(hold, 20ms, [] { return false; });
  std::timed_mutex timed;
  std::lock_guard<std::timed_mutex> taken(timed);
  const bool busy = !std::async(std::launch::async, [&] { return timed.try_lock_for(20ms); }).get();
  const auto passed = std::chrono::steady_clock::now() - begin;
  return late && busy && passed >= 40ms && passed < 10s && std::cout.good() ? 5.0 : 0.0;
}

// With -ffast-math this loop calls the vector functions of libmvec.
double from_vectors(double x) {
  double values[64];
  for (int i = 0; i < 64; ++i) values[i] = x * i;
  double sum = 0;
  for (int i = 0; i < 64; ++i) sum += std::exp(values[i] - x * i);
  return sum;
}

}  // namespace

// out[0] = 64 + 5 + 2.5 + 3 + 4 + 3 + 42 + x^2 + log(exp(x)), with x = input[0]; both of one float64.
void modern(torch::stable::Tensor& out, const torch::stable::Tensor& input) {
  const double x = *static_cast<const double*>(input.const_data_ptr());
  double* to = static_cast<double*>(out.mutable_data_ptr());
  *to = from_vectors(x) + from_clocks() + from_text() + from_threads() + from_files() + from_memory() + from_words() +
        std::pow(x, 2.0) + std::log(std::exp(x));
}
