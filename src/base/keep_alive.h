// Noticing that the host at the other end of a connection is cut off.
#pragma once

namespace trireme {

/// Where nothing is sent, the system asks the other host from now on whether it is still there. After 8 s without an
/// answer the connection has ended.
void keep_alive(int socket);

}  // namespace trireme
