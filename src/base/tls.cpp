#include "base/tls.h"

#include "trireme/error.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <system_error>
#include <utility>

namespace trireme {
namespace {

constexpr const char* kIdentity = "trireme";
constexpr std::size_t kRecordHeaderBytes = 5;

template <auto release>
struct Freed {
  template <typename T>
  void operator()(T* thing) const {
    release(thing);
  }
};

[[noreturn]] void fail(const char* what) {
  std::array<char, 256> text{};
  ERR_error_string_n(ERR_get_error(), text.data(), text.size());
  throw SystemError(fmt::format("TLS: {}: {}", what, text.data()));
}

template <typename T>
T* must(T* thing, const char* what) {
  if (thing == nullptr) fail(what);
  return thing;
}

}  // namespace

// What OpenSSL reads and writes goes through here: without signals, and many records by one call to the system.
class Tls::Impl {
 public:
  Impl(int socket, Role role, const Digest& key)
      : socket_(socket), key_(key), ssl_(must(SSL_new(context()), "no connection")) {
    BIO* bio = must(BIO_new(method()), "no way to the socket");
    BIO_set_data(bio, this);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_.get(), bio, bio);
    SSL_set_app_data(ssl_.get(), this);
    role == Role::client ? SSL_set_connect_state(ssl_.get()) : SSL_set_accept_state(ssl_.get());
  }

  ssize_t write(const void* data, std::size_t bytes) {
    std::size_t done = 0;
    waits_to_read_ = false;
    while (done < bytes) {
      std::size_t count = 0;
      ERR_clear_error();
      const int result = SSL_write_ex(ssl_.get(), static_cast<const char*>(data) + done, bytes - done, &count);
      if (result <= 0) {
        const ssize_t ended = explain(result);
        waits_to_read_ = SSL_want_read(ssl_.get()) != 0;
        return done > 0 ? static_cast<ssize_t>(done) : std::min<ssize_t>(ended, -1);
      }
      done += count;
    }
    return static_cast<ssize_t>(done);
  }

  ssize_t read(void* data, std::size_t bytes) {
    std::size_t done = 0;
    while (done < bytes) {
      std::size_t count = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_.get(), static_cast<char*>(data) + done, bytes - done, &count);
      if (result <= 0) {
        const ssize_t ended = explain(result);
        return done > 0 ? static_cast<ssize_t>(done) : ended;
      }
      done += count;
    }
    return static_cast<ssize_t>(done);
  }

  bool waits_to_read() const { return waits_to_read_; }

  bool unread() const {
    if (SSL_pending(ssl_.get()) > 0) return true;
    if (end_ - begin_ < kRecordHeaderBytes) return false;
    const auto byte = [&](std::size_t i) {
      return static_cast<std::size_t>(static_cast<unsigned char>(buffer_[begin_ + i]));
    };
    return end_ - begin_ >= kRecordHeaderBytes + (byte(3) << 8 | byte(4));
  }

  bool shake() {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    if (result == 1) return true;
    const ssize_t ended = explain(result);
    if (ended < 0 && errno == EAGAIN) return false;
    throw PeerError(fmt::format("keys could not be exchanged: {}", ended == 0 ? "the other end hung up" : why(errno)));
  }

 private:
  // One for all connections: none has anything of its own but the key.
  static SSL_CTX* context() {
    static const std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> kContext = make_context();
    return kContext.get();
  }

  static std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> make_context() {
    std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>> made(must(SSL_CTX_new(TLS_method()), "no context"));
    SSL_CTX* const context = made.get();
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 || SSL_CTX_set_num_tickets(context, 0) != 1) {
      fail("no TLS 1.3 with AES-128-GCM");
    }
    // What ends without a goodbye of Trireme's own, inside, was cut off; TLS need not say it, too.
    SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF);
    SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    SSL_CTX_set_psk_client_callback(context,
                                    [](SSL* ssl, const char*, char* identity, unsigned most_identity,
                                       unsigned char* key, unsigned most) -> unsigned {
                                      std::snprintf(identity, most_identity, "%s", kIdentity);
                                      return give_key(ssl, key, most);
                                    });
    SSL_CTX_set_psk_server_callback(context, [](SSL* ssl, const char*, unsigned char* key, unsigned most) -> unsigned {
      return give_key(ssl, key, most);
    });
    return made;
  }

  static unsigned give_key(const SSL* ssl, unsigned char* key, unsigned most) {
    const auto* self = static_cast<const Impl*>(SSL_get_app_data(ssl));
    if (most < self->key_.size()) return 0;
    std::memcpy(key, self->key_.data(), self->key_.size());
    return static_cast<unsigned>(self->key_.size());
  }

  static const BIO_METHOD* method() {
    static const std::unique_ptr<BIO_METHOD, Freed<BIO_meth_free>> kMethod = [] {
      std::unique_ptr<BIO_METHOD, Freed<BIO_meth_free>> made(
          must(BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "socket"), "no kind of way to a socket"));
      BIO_meth_set_write(made.get(),
                         [](BIO* bio, const char* data, int bytes) { return of(bio).send(bio, data, bytes); });
      BIO_meth_set_read(made.get(), [](BIO* bio, char* data, int bytes) { return of(bio).take(bio, data, bytes); });
      BIO_meth_set_ctrl(made.get(), [](BIO* bio, int what, long, void*) -> long {
        if (what == BIO_CTRL_EOF) return of(bio).ended_ ? 1 : 0;
        return what == BIO_CTRL_FLUSH ? 1 : 0;
      });
      return made;
    }();
    return kMethod.get();
  }

  static Impl& of(BIO* bio) { return *static_cast<Impl*>(BIO_get_data(bio)); }

  int send(BIO* bio, const char* data, int bytes) const {
    BIO_clear_retry_flags(bio);
    const ssize_t sent = ::send(socket_, data, static_cast<std::size_t>(bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
    return static_cast<int>(sent);
  }

  int take(BIO* bio, char* data, int bytes) {
    BIO_clear_retry_flags(bio);
    if (begin_ == end_) {
      const ssize_t came = ::recv(socket_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
      if (came < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
      if (came == 0) ended_ = true;
      if (came <= 0) return static_cast<int>(came);
      begin_ = 0;
      end_ = static_cast<std::size_t>(came);
    }
    const std::size_t count = std::min(end_ - begin_, static_cast<std::size_t>(bytes));
    std::memcpy(data, buffer_.data() + begin_, count);
    begin_ += count;
    return static_cast<int>(count);
  }

  static std::string why(int error) {
    return error == EBADMSG ? "what came does not fit this connection's key" : std::generic_category().message(error);
  }

  // 0: it has ended; -1: errno says why there is nothing.
  ssize_t explain(int result) const {
    const int system = errno;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_ZERO_RETURN: return 0;
      case SSL_ERROR_WANT_READ:
      case SSL_ERROR_WANT_WRITE: errno = EAGAIN; break;
      case SSL_ERROR_SYSCALL: errno = system != 0 && system != EAGAIN ? system : ECONNRESET; break;
      default: errno = EBADMSG;  // What came was not encrypted with this connection's key.
    }
    return -1;
  }

  const int socket_;
  const Digest key_;
  std::unique_ptr<SSL, Freed<SSL_free>> ssl_;
  bool waits_to_read_ = false;
  bool ended_ = false;
  std::array<char, std::size_t{64} << 10> buffer_;  // what came from the socket
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

Tls::Tls(int socket, Role role, const Digest& key) : impl_(std::make_unique<Impl>(socket, role, key)) {}
Tls::~Tls() = default;
ssize_t Tls::write(const void* data, std::size_t bytes) { return impl_->write(data, bytes); }
ssize_t Tls::read(void* data, std::size_t bytes) { return impl_->read(data, bytes); }
bool Tls::waits_to_read() const { return impl_->waits_to_read(); }
bool Tls::unread() const { return impl_->unread(); }
bool Tls::shake() { return impl_->shake(); }

}  // namespace trireme
