/* Delays fsync and fdatasync of the process it is preloaded into (LD_PRELOAD).
 *
 * Before each call it reads a number of milliseconds from the file named by ZKM_FSYNC_DELAY_FILE and sleeps
 * that long. A missing file, an empty one or 0 means no delay, so the delay can be changed while the process
 * runs. The real call follows and its result is returned unchanged.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void delay(void)
{
    const char *path = getenv("ZKM_FSYNC_DELAY_FILE");
    char text[16] = "";
    int saved = errno;
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        ssize_t got = read(file, text, sizeof text - 1);
        close(file);
        long milliseconds = got > 0 ? strtol(text, NULL, 10) : 0;
        if (milliseconds > 0) {
            struct timespec left = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
            while (nanosleep(&left, &left) != 0 && errno == EINTR)
                ;
        }
    }
    errno = saved;
}

static int delayed(const char *name, int file)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    delay();
    return real(file);
}

int fsync(int file)
{
    return delayed("fsync", file);
}

int fdatasync(int file)
{
    return delayed("fdatasync", file);
}
