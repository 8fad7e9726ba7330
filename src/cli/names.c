#include "cli/names.h"

#include "cli/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Reads to the end; one byte more than what was read is always there for a NUL. */
static int read_all(int fd, const char *shown, struct rcp_err *err, char **text, size_t *len)
{
	size_t room = 0;

	*len = 0;
	for (;;) {
		if (room - *len < 2) {
			room = room ? 2 * room : 65536;
			char *more = realloc(*text, room);

			if (!more)
				return rcp_err_set(err, RCP_E_IO, ENOMEM, "realloc", shown, NULL);
			*text = more;
		}
		ssize_t n = read(fd, *text + *len, room - *len - 1);

		if (n == 0)
			return 0;
		if (n > 0)
			*len += (size_t)n;
		else if (errno != EINTR)
			return rcp_err_set(err, RCP_E_IO, errno, "read", shown, NULL);
	}
}

static int split(char *text, size_t len, const char *shown, bool nul, struct rcp_err *err,
		 struct cli_list *list)
{
	char *end = text + len;

	*end = 0;
	for (char *name = text; name < end;) {
		char *stop = memchr(name, nul ? 0 : '\n', (size_t)(end - name));

		if (!stop)
			stop = end;
		if (memchr(name, 0, (size_t)(stop - name))) {
			rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "a NUL byte within a name");
			rcp_err_fix(err, "add -0 where names end with NUL");
			return RCP_E_USAGE;
		}
		*stop = 0;
		if (*name && cli_list_add(list, name, err))
			return (int)err->code;
		name = stop + 1;
	}
	return 0;
}

int cli_names_read(const char *path, bool nul, struct rcp_err *err, struct cli_names *out)
{
	bool standard = !strcmp(path, "-");
	const char *shown = standard ? "standard input" : path;
	size_t len = 0;
	int fd = standard ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);

	*out = (struct cli_names){0};
	if (fd < 0)
		return rcp_err_set(err, RCP_E_USAGE, errno, "open", shown, NULL);
	int code = read_all(fd, shown, err, &out->text, &len);

	if (!standard)
		close(fd);
	if (!code)
		code = split(out->text, len, shown, nul, err, &out->list);
	if (!code && !out->list.count)
		code = rcp_err_set(err, RCP_E_USAGE, 0, NULL, shown, "no names in it");
	if (code)
		cli_names_free(out);
	return code;
}

void cli_names_free(struct cli_names *names)
{
	cli_list_free(&names->list);
	free(names->text);
	*names = (struct cli_names){0};
}
