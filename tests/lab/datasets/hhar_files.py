"""Small files in the official layout of HHAR."""

HEADER = "Index,Arrival_Time,Creation_Time,x,y,z,User,Model,Device,gt"
FILES = ("Phones_accelerometer", "Phones_gyroscope", "Watch_accelerometer", "Watch_gyroscope")
EPOCH_NS = 1_424_696_631_913_248_572


def row(seconds, values, user="a", device="nexus4_1", activity="walk", arrival=None):
    arrival_ms = 1_424_696_633_908 + round(1000 * (seconds if arrival is None else arrival))
    x, y, z = values
    model = device.split("_")[0]
    creation = EPOCH_NS + round(1e9 * seconds)
    return f"0,{arrival_ms},{creation},{x},{y},{z},{user},{model},{device},{activity}"


def write(folder, **rows):
    """The four files; those not given have a header alone."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in FILES:
        lines = [HEADER, *rows.get(name, [])]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def walk(seconds, rate=100.0, lag=0.0, **options):
    """Rows of a sensor that reads (t, 2t, −t) at time t."""
    times = [i / rate + lag for i in range(int(seconds * rate) + 1)]
    return [row(t, (t, 2 * t, -t), **options) for t in times]
