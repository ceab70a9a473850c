// The names by which this project speaks of Asio, and the token that makes an operation return its error.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/system/error_code.hpp>

namespace cpprun {

namespace asio = boost::asio;
using asio::awaitable;

}  // namespace cpprun

namespace cpprun::async {

using boost::system::error_code;

// auto [error, n] = co_await socket.async_read_some(buffer, use_error);   // never throws
inline constexpr asio::as_tuple_t<asio::use_awaitable_t<>> use_error = asio::as_tuple(asio::use_awaitable);

}  // namespace cpprun::async
