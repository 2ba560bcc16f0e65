/* Loaded into ethtool by LD_PRELOAD: its netlink socket becomes a Unix socket to a test
 * (FAKE_NETLINK names it), which answers as the kernel would. Everything else is untouched. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/netlink.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define FILES 64
static char ours[FILES];

static int is_ours(int file) { return file >= 0 && file < FILES && ours[file]; }

int socket(int domain, int type, int protocol)
{
	int (*real)(int, int, int) = dlsym(RTLD_NEXT, "socket");
	struct sockaddr_un there = {.sun_family = AF_UNIX};
	int file;

	if (domain != AF_NETLINK)
		return real(domain, type, protocol);
	strncpy(there.sun_path, getenv("FAKE_NETLINK"), sizeof(there.sun_path) - 1);
	file = real(AF_UNIX, SOCK_SEQPACKET, 0);
	if (file < 0 || file >= FILES || connect(file, (struct sockaddr *)&there, sizeof(there)))
		return -1;
	ours[file] = 1;
	return file;
}

int bind(int file, const struct sockaddr *address, socklen_t length)
{
	int (*real)(int, const struct sockaddr *, socklen_t) = dlsym(RTLD_NEXT, "bind");

	return is_ours(file) ? 0 : real(file, address, length);
}

int getsockname(int file, struct sockaddr *address, socklen_t *length)
{
	int (*real)(int, struct sockaddr *, socklen_t *) = dlsym(RTLD_NEXT, "getsockname");
	struct sockaddr_nl name = {.nl_family = AF_NETLINK, .nl_pid = 1};

	if (!is_ours(file))
		return real(file, address, length);
	memcpy(address, &name, sizeof(name));
	*length = sizeof(name);
	return 0;
}

int setsockopt(int file, int level, int option, const void *value, socklen_t length)
{
	int (*real)(int, int, int, const void *, socklen_t) = dlsym(RTLD_NEXT, "setsockopt");

	return is_ours(file) ? 0 : real(file, level, option, value, length);
}

ssize_t sendto(int file, const void *data, size_t size, int flags, const struct sockaddr *to,
	       socklen_t length)
{
	ssize_t (*real)(int, const void *, size_t, int, const struct sockaddr *, socklen_t) =
		dlsym(RTLD_NEXT, "sendto");

	return is_ours(file) ? real(file, data, size, flags, NULL, 0)
			     : real(file, data, size, flags, to, length);
}

ssize_t recvmsg(int file, struct msghdr *message, int flags)
{
	ssize_t (*real)(int, struct msghdr *, int) = dlsym(RTLD_NEXT, "recvmsg");
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	void *name = message->msg_name;
	ssize_t size;

	if (!is_ours(file))
		return real(file, message, flags);
	message->msg_name = NULL;
	message->msg_namelen = 0;
	size = real(file, message, flags);
	if (name)
		memcpy(name, &kernel, sizeof(kernel));
	message->msg_name = name;
	message->msg_namelen = sizeof(kernel);
	return size;
}
