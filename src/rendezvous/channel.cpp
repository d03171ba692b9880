#include "rendezvous/channel.h"

#include "trireme/error.h"

#include <cerrno>
#include <system_error>
#include <utility>

namespace trireme::rendezvous {

void Channel::send(SharedBytes bytes) {
  out_.push_back(std::move(bytes));
  if (out_.size() == 1) flush();
}

void Channel::encrypt(Tls::Role role, const Digest& key) {
  if (!out_.empty()) throw ProtocolError("it does not take what it is sent");
  tls_ = std::make_unique<Tls>(socket_.get(), role, key);
}

ssize_t Channel::write(std::string_view bytes) const {
  return tls_ ? tls_->write(bytes.data(), bytes.size())
              : ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

void Channel::flush() {
  while (!out_.empty()) {
    const std::string_view rest = std::string_view(*out_.front()).substr(sent_);
    const ssize_t count = write(rest);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      out_.clear();
      sent_ = 0;
      return;
    }
    sent_ += static_cast<std::size_t>(count);
    if (sent_ < out_.front()->size()) continue;
    out_.pop_front();
    sent_ = 0;
  }
  if (finished_) ::shutdown(socket_.get(), SHUT_WR);
}

void Channel::finish() {
  finished_ = true;
  flush();
}

Channel::Arrived Channel::receive(std::span<char> buffer) const {
  const ssize_t count =
      tls_ ? tls_->read(buffer.data(), buffer.size()) : ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
  if (count > 0) return {.bytes = {buffer.data(), static_cast<std::size_t>(count)}};
  // A reset only says that the other side had not read everything when it hung up.
  if (count == 0 || errno == ECONNRESET) return {.bytes = {}, .ended = true};
  if (errno == EAGAIN || errno == EINTR) return {};
  const bool altered = errno == EBADMSG;  // which is what Tls says
  return {.bytes = {},
          .ended = true,
          .why = altered ? "it sent bytes that were not encrypted with this connection's key"
                         : std::generic_category().message(errno)};
}

}  // namespace trireme::rendezvous
