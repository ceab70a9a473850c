// Runs one coroutine to its end on a loop of its own, or on a given one, and gives its result or throws its
// error.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <utility>

namespace cpprun {

template <typename T>
T run_coroutine(boost::asio::io_context& context, boost::asio::awaitable<T> coroutine) {
  std::future<T> result = boost::asio::co_spawn(context, std::move(coroutine), boost::asio::use_future);
  context.restart();
  context.run();
  return result.get();
}

template <typename T>
T run_coroutine(boost::asio::awaitable<T> coroutine) {
  boost::asio::io_context context;
  return run_coroutine(context, std::move(coroutine));
}

}  // namespace cpprun
