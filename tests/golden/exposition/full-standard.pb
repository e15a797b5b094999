allostat_exposition_info kind 1 unit "": Profile of this response, with telemetry.include and telemetry.exclude; other families are not exposed.
  {profile="standard"} 1
allostat_build_info kind 1 unit "": Version of the agent; schema is the version of its metric names and labels.
  {version="0.1.0",schema="2"} 1
allostat_alloc_info kind 1 unit "": Alloc identity; join: * on (job, instance, alloc_id) group_left (task_group, name) allostat_alloc_info.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",task_group="app",alloc_ns="default",name="shop.app[0]",source="managed",cgroup="/allostat/00000000-0000-4000-8000-000000000001",measured="cgroup",aggregation="cgroup"} 1
  {alloc_id="00000000-0000-4000-8000-000000000002",workload="nightly\nbatch",task_group="app",alloc_ns="default",name="nightly\nbatch.app[0]",source="managed",measured="process",aggregation="sum"} 1
allostat_task_info kind 1 unit "": Task identity: driver, user, image, cgroup version (v1, v2 or hybrid), and the pod of a container in Kubernetes.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",driver="raw_exec",user="www \"data\"",cgroup_version="hybrid"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",driver="raw_exec",cgroup_version="hybrid"} 1
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",driver="raw_exec"} 1
allostat_task_memory_usage_bytes kind 1 unit "bytes": Memory charged to the cgroup: anonymous, page cache and kernel memory.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001939
allostat_task_memory_peak_bytes kind 1 unit "bytes": Lifetime peak of memory_usage_bytes, recorded by the kernel; the maximum over restarts.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 18446744073709552000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001823
allostat_task_memory_window_peak_bytes kind 1 unit "bytes": Peak of memory_usage_bytes in the last 60 s, recorded by the kernel in windows of 5 s.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002582
allostat_task_memory_sampled_peak_bytes kind 1 unit "bytes": Highest sampled memory_usage_bytes; spikes between two samples are missed.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002660
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002660
allostat_task_memory_working_set_bytes kind 1 unit "bytes": memory_usage_bytes minus inactive page cache, at least 0: memory not easily reclaimed.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002602
allostat_task_memory_rss_bytes kind 1 unit "bytes": Anonymous memory of the cgroup; without a cgroup, the sum of resident sets of its processes.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001750
allostat_task_memory_limit_bytes kind 1 unit "bytes": Lowest memory limit from the cgroup up to the root, at which the OOM killer acts.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001949
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001949
allostat_task_oom_kills_total kind 0 unit "": Processes killed by the kernel's OOM killer.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 9007199254740992 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000000969 created 1767323045.000000000
allostat_task_cpu_usage_seconds_total kind 0 unit "seconds": CPU time of all processes that ever ran in the cgroup.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 0.040001281 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1.000001276 created 1767323045.000000000
allostat_task_cpu_cfs_periods_total kind 0 unit "": CFS quota periods in which the cgroup was runnable.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001592 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001592 created 1767323045.000000000
allostat_task_cpu_cfs_throttled_periods_total kind 0 unit "": CFS quota periods in which the cgroup was throttled.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002673 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002673 created 1767323045.000000000
allostat_task_cpu_limit_cores kind 1 unit "cores": CPU quota in cores: quota / period.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 0.9999977750774829
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 0.999999911000124
allostat_task_io_read_bytes_total kind 0 unit "bytes": Bytes read from block devices, without reads from the page cache.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001369 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001369 created 1767323045.000000000
allostat_task_io_written_bytes_total kind 0 unit "bytes": Bytes written to block devices; on v1 without buffered writes.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001738 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001738 created 1767323045.000000000
allostat_task_pids_current kind 1 unit "": Current number of processes and threads.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001298
allostat_task_pids_limit kind 1 unit "": Limit of processes and threads (pids.max).
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40001070
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000001070
allostat_task_network_receive_bytes_total kind 0 unit "bytes": Bytes received in the network namespace, without loopback.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002258 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002258 created 1767323045.000000000
allostat_task_network_transmit_bytes_total kind 0 unit "bytes": Bytes sent from the network namespace, without loopback.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 40002401 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1000002401 created 1767323045.000000000
allostat_task_pressure_stall_seconds_total kind 0 unit "seconds": PSI stall time: some or all runnable processes waited for the resource.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="cpu",kind="some"} 0.040002163 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="cpu",kind="full"} 0.040002162 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="memory",kind="some"} 0.0400025 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="memory",kind="full"} 0.040002499 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="io",kind="some"} 0.040002051 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="io",kind="full"} 0.04000205 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",resource="irq",kind="full"} 0.040002166 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="cpu",kind="some"} 1.000002163 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="cpu",kind="full"} 1.000002162 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="memory",kind="some"} 1.0000025 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="memory",kind="full"} 1.000002499 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="io",kind="some"} 1.000002051 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="io",kind="full"} 1.00000205 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",resource="irq",kind="full"} 1.000002166 created 1767323045.000000000
allostat_alloc_memory_usage_bytes kind 1 unit "bytes": Memory charged to the cgroup: anonymous, page cache and kernel memory; whole alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop"} 50001939
allostat_alloc_memory_peak_bytes kind 1 unit "bytes": Lifetime peak of memory_usage_bytes, recorded by the kernel; the maximum over restarts; whole alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop"} 18446744073709552000
allostat_alloc_memory_working_set_bytes kind 1 unit "bytes": memory_usage_bytes minus inactive page cache, at least 0: memory not easily reclaimed; whole alloc.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop"} 50002602
allostat_workload_oom_kills_total kind 0 unit "": Processes killed by the kernel's OOM killer; all allocs of the workload, live and ended.
  {task="web",workload="shop",source="managed"} 9007199254740992 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed"} 1000000969 created 1767322944.999999993 # alloc_id="00000000-0000-4000-8000-000000000002",event_id="18446744073709551615" 1000000969 1767323045.000000000
allostat_workload_cpu_usage_seconds_total kind 0 unit "seconds": CPU time of all processes that ever ran in the cgroup; all allocs of the workload, live and ended.
  {task="web",workload="shop",source="managed"} 0.040001276 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed"} 1.000001276 created 1767322944.999999993
allostat_task_device_memory_used_bytes kind 1 unit "bytes": Device memory held by the task's processes.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 3000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 1000000
allostat_task_device_memory_peak_bytes kind 1 unit "bytes": Highest sampled device memory of the task; with driver accounting, at least the peak of each process.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 6000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 2000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",device_uuid="GPU-0"} 14
allostat_task_device_sm_utilization_ratio kind 1 unit "ratio": Share of time in which the task kept the device's processors (SMs) busy.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 0.25
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 0.25
allostat_task_device_processes kind 1 unit "": Processes of the task that hold the device; 0 if it is reserved but unused.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 1
allostat_task_device_energy_joules_total kind 0 unit "joules": Energy of the whole device while the task held it exclusively.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 3000.001 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 1000.001 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",device_uuid="GPU-0"} 0.008 created 1767323045.000000000
allostat_task_device_xid_errors_total kind 0 unit "": XID errors reported by the driver while the task held or used the device.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",device_uuid="GPU-0"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",device_uuid="GPU-0"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",device_uuid="GPU-0"} 2 created 1767323045.000000000
allostat_alloc_device_memory_used_bytes kind 1 unit "bytes": Device memory held by the task's processes; sum over the alloc's tasks.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 4000000
allostat_alloc_device_sm_utilization_ratio kind 1 unit "ratio": Share of time in which the task kept the device's processors (SMs) busy; sum over the alloc's tasks.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 0.5
allostat_alloc_device_processes kind 1 unit "": Processes of the task that hold the device; 0 if it is reserved but unused; sum over the alloc's tasks.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 2
allostat_alloc_device_energy_joules_total kind 0 unit "joules": Energy of the whole device while the task held it exclusively; sum over the alloc's tasks.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 4000.002 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",workload="nightly\nbatch",device_uuid="GPU-0"} 0.008 created 1767323045.000000000
allostat_alloc_device_xid_errors_total kind 0 unit "": XID errors reported by the driver while the task held or used the device; sum over the alloc's tasks.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",workload="nightly\nbatch",device_uuid="GPU-0"} 2 created 1767323045.000000000
allostat_alloc_device_info kind 1 unit "": Device or device instance of an alloc; reserved: assigned to it, whether used or not.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-0",reserved="true"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop",device_uuid="GPU-2",gpu_instance_id="7",mig_uuid="MIG-2-7",reserved="true"} 1
allostat_alloc_disk_size_bytes kind 1 unit "bytes": Size of ephemeral_disk in the job file (default 300 MiB); enforced with project quotas.
  {alloc_id="00000000-0000-4000-8000-000000000001",workload="shop"} 314572800
allostat_task_state kind 1 unit "": 1 for the current state of the task, 0 for the other states.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="pending"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="starting"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="running"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="backoff"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="killing"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="dead"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="pending"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="starting"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="running"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="backoff"} 1
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="killing"} 0
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="dead"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="pending"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="starting"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="running"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="backoff"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="killing"} 0
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="dead"} 1
allostat_task_state_since_timestamp_seconds kind 1 unit "seconds": Time of the last state change of the task.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 1767322955
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop"} 1767323044
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch"} 1767323043
allostat_task_start_time_seconds kind 1 unit "seconds": Start time of the running task's main process (Unix time); uptime is time() minus this.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop"} 1767322955
allostat_task_time_in_state_seconds_total kind 0 unit "seconds": Time that the task spent in each state, including the current one and agent downtime.
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="running"} 90.000000001 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",state="backoff"} 30.5 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",state="backoff"} 1 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",state="dead"} 2 created 1767323045.000000000
allostat_task_restarts_total kind 0 unit "": Restarts of the task by reason: policy, oom, start_failure, requested (managed); oom, failure, other (observed).
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="policy"} 2 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="oom"} 1 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="start_failure"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="web",workload="shop",reason="requested"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="policy"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="oom"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="start_failure"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000001",task="log\\shipper",workload="shop",reason="requested"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="policy"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="oom"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="start_failure"} 0 created 1767323045.000000000
  {alloc_id="00000000-0000-4000-8000-000000000002",task="step",workload="nightly\nbatch",reason="requested"} 0 created 1767323045.000000000
allostat_allocs kind 1 unit "": Allocs known to the agent, by state.
  {state="pending"} 0
  {state="running"} 1
  {state="complete"} 0
  {state="failed"} 1
allostat_allocs_waiting kind 1 unit "": Managed allocs that wait to be placed, by reason; an alloc with two reasons counts for both.
  {reason="constraint"} 0
  {reason="datacenter"} 0
  {reason="node_pool"} 0
  {reason="distinct_hosts"} 0
  {reason="distinct_property"} 0
  {reason="cores"} 0
  {reason="port"} 0
  {reason="host_volume"} 0
  {reason="state_db"} 0
allostat_tasks kind 1 unit "": Tasks known to the agent, by state.
  {state="pending"} 0
  {state="starting"} 0
  {state="running"} 1
  {state="backoff"} 1
  {state="killing"} 0
  {state="dead"} 1
allostat_host_allocated_memory_bytes kind 1 unit "bytes": Memory reserved by job files for allocs that have not ended; tasks without a limit count 0.
  {} 134217728
allostat_host_allocated_cpu_cores kind 1 unit "cores": CPU quotas of running tasks; tasks without a quota count 0.
  {} 0.9999977750774829
allostat_workload_restarts_total kind 0 unit "": Restarts of the task in all allocs of the workload, live and ended, by reason.
  {task="web",workload="shop",source="managed",reason="policy"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",reason="oom"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",reason="start_failure"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",reason="requested"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",reason="policy"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",reason="oom"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",reason="start_failure"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",reason="requested"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",reason="policy"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",reason="oom"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",reason="start_failure"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",reason="requested"} 0 created 1767322944.999999993
allostat_workload_exits_total kind 0 unit "": Ended attempts of the task in all allocs of the workload, by outcome; failed starts are not counted.
  {task="web",workload="shop",source="managed",outcome="success"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",outcome="error"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",outcome="signal"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",outcome="oom"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",outcome="killed"} 0 created 1767322944.999999993
  {task="web",workload="shop",source="managed",outcome="unknown"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",outcome="success"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",outcome="error"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",outcome="signal"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",outcome="oom"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",outcome="killed"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed",outcome="unknown"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",outcome="success"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",outcome="error"} 1 created 1767322944.999999993 # alloc_id="00000000-0000-4000-8000-000000000002",event_id="18446744073709551615" 1 1767323045.000000000
  {task="step",workload="nightly\nbatch",source="managed",outcome="signal"} 1 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",outcome="oom"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",outcome="killed"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed",outcome="unknown"} 0 created 1767322944.999999993
allostat_workload_exit_codes_total kind 0 unit "": Failed exits of the task in all allocs of the workload by exit code, and exits by signal by its number.
  {task="step",workload="nightly\nbatch",source="managed",code="3"} 1 created 1767322944.999999993 # alloc_id="00000000-0000-4000-8000-000000000002",event_id="18446744073709551615" 1 1767323045.000000000
  {task="step",workload="nightly\nbatch",source="managed",signal="11"} 1 created 1767322944.999999993
allostat_workload_events_total kind 0 unit "": Events of the task in all allocs of the workload, by kind.
  {task="step",workload="nightly\nbatch",source="managed",event="terminated"} 1 created 1767322944.999999993
allostat_workload_kill_escalations_total kind 0 unit "": Kills in which the task outlived its kill timeout and was killed by force.
  {task="web",workload="shop",source="managed"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed"} 0 created 1767322944.999999993
allostat_workload_given_up_total kind 0 unit "": Abandoned tasks: counted as dead but possibly alive (outlived SIGKILL, or no answer from the driver).
  {task="web",workload="shop",source="managed"} 0 created 1767322944.999999993
  {task="log\\shipper",workload="shop",source="managed"} 0 created 1767322944.999999993
  {task="step",workload="nightly\nbatch",source="managed"} 0 created 1767322944.999999993
allostat_workload_log_lost_bytes_total kind 0 unit "bytes": Task output lost because the logs could not be written, over ended attempts of the workload.
  {task="step",workload="nightly\nbatch",source="managed",stream="stdout"} 7 created 1767322944.999999993
allostat_workload_failed_allocs kind 1 unit "": Allocs that failed for good and were not replaced, by reason (restarts_used_up, other).
  {workload="nightly\nbatch",reason="restarts_used_up"} 0
  {workload="nightly\nbatch",reason="other"} 1
  {workload="shop",reason="restarts_used_up"} 0
  {workload="shop",reason="other"} 0
allostat_workload_reschedules_total kind 0 unit "": Failed allocs of the workload that were replaced by a new alloc (reschedule).
  {workload="nightly\nbatch"} 0 created -
  {workload="shop"} 0 created -
allostat_workload_run_seconds_total kind 0 unit "seconds": Total run time of ended allocs of the workload, by outcome.
  {workload="nightly\nbatch",outcome="success"} 0 created -
  {workload="nightly\nbatch",outcome="error"} 7 created -
  {workload="nightly\nbatch",outcome="signal"} 0 created -
  {workload="nightly\nbatch",outcome="oom"} 0 created -
  {workload="nightly\nbatch",outcome="killed"} 0 created -
  {workload="nightly\nbatch",outcome="unknown"} 0 created -
  {workload="shop",outcome="success"} 0 created -
  {workload="shop",outcome="error"} 0 created -
  {workload="shop",outcome="signal"} 0 created -
  {workload="shop",outcome="oom"} 0 created -
  {workload="shop",outcome="killed"} 0 created -
  {workload="shop",outcome="unknown"} 0 created -
allostat_workload_start_duration_seconds kind 4 unit "seconds": Time from a task's turn until its main process runs, without earlier waits; since the agent started.
  {workload="shop"} count 1 sum 0.047 created 1767322045.000000000
    <= 0.005: 0
    <= 0.01: 0
    <= 0.05: 1 # alloc_id="6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61" 0.047 1767323045.000000000
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-35+1] deltas [1]
allostat_workload_kill_duration_seconds kind 4 unit "seconds": Time from a stop request until all processes are gone or the task is abandoned; since the agent started.
  {workload="shop"} count 1 sum 400 created 1767322045.000000000
    <= 0.01: 0
    <= 0.1: 0
    <= 0.5: 0
    <= 1: 0
    <= 5: 0
    <= 10: 0
    <= 30: 0
    <= 60: 0
    <= 300: 0
    <= inf: 1 # alloc_id="6f1c2f3e-5b0a-4c1d-9a57-2d0c3b4a5e61" 400 1767323045.000000000
    schema 3 zero 0 <= 2.938735877055719e-39 spans [70+1] deltas [1]
allostat_node_task_exits_total kind 0 unit "": Ended attempts over the agent's lifetime, across its restarts, including expired workloads.
  {outcome="success"} 100 created -
  {outcome="error"} 1 created -
  {outcome="signal"} 1 created -
  {outcome="oom"} 2 created -
  {outcome="killed"} 0 created -
  {outcome="unknown"} 0 created -
allostat_node_task_oom_kills_total kind 0 unit "": Processes of tasks killed by the OOM killer over the agent's lifetime, across its restarts.
  {} 9007201254742932 created -
allostat_node_task_restarts_total kind 0 unit "": Restarts of tasks over the agent's lifetime, across its restarts.
  {reason="policy"} 0 created -
  {reason="oom"} 0 created -
  {reason="start_failure"} 0 created -
  {reason="requested"} 0 created -
allostat_node_cpu_usage_seconds_total kind 0 unit "seconds": CPU time of all tasks over the agent's lifetime, across its restarts, including live tasks.
  {} 2.040003828 created -
allostat_node_allocs_total kind 0 unit "": Allocs accepted over the agent's lifetime, across its restarts.
  {} 102 created -
allostat_device_utilization_ratio kind 1 unit "ratio": Busy share of a device engine (general, memory, encoder, decoder), averaged over at most 1 s.
  {device_uuid="GPU-0",engine="general"} 0.875
  {device_uuid="GPU-0",engine="memory"} 0.5
  {device_uuid="GPU-0",engine="encoder"} 0
  {device_uuid="GPU-0",engine="decoder"} 1
allostat_device_memory_used_bytes kind 1 unit "bytes": Device memory in use, without the part reserved by its driver.
  {device_uuid="GPU-0"} 42949672960
allostat_device_memory_free_bytes kind 1 unit "bytes": Unused device memory.
  {device_uuid="GPU-0"} 41875931136
allostat_device_memory_reserved_bytes kind 1 unit "bytes": Device memory reserved by its driver and firmware.
  {device_uuid="GPU-0"} 1073741824
allostat_device_memory_total_bytes kind 1 unit "bytes": Total device memory.
  {device_uuid="GPU-0"} 85899345920
allostat_device_bar1_used_bytes kind 1 unit "bytes": Device memory mapped on the bus (BAR1).
  {device_uuid="GPU-0"} 1048576
allostat_device_temperature_celsius kind 1 unit "celsius": Temperature of the device by sensor.
  {device_uuid="GPU-0",sensor="gpu"} 41
  {device_uuid="GPU-0",sensor="memory"} 52
allostat_device_temperature_threshold_celsius kind 1 unit "celsius": Temperature threshold of the device by kind.
  {device_uuid="GPU-0",threshold="slowdown"} 87
  {device_uuid="GPU-0",threshold="shutdown"} 88
  {device_uuid="GPU-0",threshold="gpu_max"} 89
  {device_uuid="GPU-0",threshold="memory_max"} 90
allostat_device_power_watts kind 1 unit "watts": Current power draw of the device.
  {device_uuid="GPU-0"} 412.345
allostat_device_power_average_watts kind 1 unit "watts": Average power draw of the device over the last second.
  {device_uuid="GPU-0"} 400.001
allostat_device_power_limit_watts kind 1 unit "watts": Enforced power limit of the device.
  {device_uuid="GPU-0"} 700
allostat_device_energy_joules_total kind 0 unit "joules": Energy used by the device, by its own counter.
  {device_uuid="GPU-0"} 123456789.012 created -
allostat_device_clock_hertz kind 1 unit "hertz": Current clock of the device by domain.
  {device_uuid="GPU-0",domain="graphics"} 1980000000
  {device_uuid="GPU-0",domain="sm"} 1980000001
  {device_uuid="GPU-0",domain="memory"} 1980000002
  {device_uuid="GPU-0",domain="video"} 1980000003
allostat_device_clock_max_hertz kind 1 unit "hertz": Maximum clock of the device by domain.
  {device_uuid="GPU-0",domain="graphics"} 2000000000
  {device_uuid="GPU-0",domain="sm"} 2000000001
  {device_uuid="GPU-0",domain="memory"} 2000000002
  {device_uuid="GPU-0",domain="video"} 2000000003
allostat_device_throttle_active kind 1 unit "": 1 while the device is throttled for this reason.
  {device_uuid="GPU-0",reason="idle"} 1
  {device_uuid="GPU-0",reason="application_clocks"} 0
  {device_uuid="GPU-0",reason="software_power"} 1
  {device_uuid="GPU-0",reason="hardware_slowdown"} 0
  {device_uuid="GPU-0",reason="sync_boost"} 0
  {device_uuid="GPU-0",reason="software_thermal"} 0
  {device_uuid="GPU-0",reason="hardware_thermal"} 0
  {device_uuid="GPU-0",reason="hardware_power_brake"} 0
  {device_uuid="GPU-0",reason="display_clocks"} 0
allostat_device_throttle_seconds_total kind 0 unit "seconds": Time in which the device was throttled, by reason.
  {device_uuid="GPU-0",reason="idle"} 7 created -
  {device_uuid="GPU-0",reason="application_clocks"} 7.000000001 created -
  {device_uuid="GPU-0",reason="software_power"} 7.000000002 created -
  {device_uuid="GPU-0",reason="hardware_slowdown"} 7.000000003 created -
  {device_uuid="GPU-0",reason="sync_boost"} 7.000000004 created -
  {device_uuid="GPU-0",reason="software_thermal"} 7.000000005 created -
  {device_uuid="GPU-0",reason="hardware_thermal"} 7.000000006 created -
  {device_uuid="GPU-0",reason="hardware_power_brake"} 7.000000007 created -
  {device_uuid="GPU-0",reason="display_clocks"} 7.000000008 created -
allostat_device_ecc_errors_total kind 0 unit "": ECC errors since driver load (volatile) or in the device's life (aggregate).
  {device_uuid="GPU-0",kind="corrected",counter="volatile"} 1 created -
  {device_uuid="GPU-0",kind="corrected",counter="aggregate"} 2 created -
  {device_uuid="GPU-0",kind="uncorrected",counter="volatile"} 0 created -
  {device_uuid="GPU-0",kind="uncorrected",counter="aggregate"} 3 created -
allostat_device_remapped_rows kind 1 unit "": Remapped memory rows of the device, by kind of error.
  {device_uuid="GPU-0",cause="corrected"} 4
  {device_uuid="GPU-0",cause="uncorrected"} 5
allostat_device_row_remap_pending kind 1 unit "": 1 if rows will be remapped at the next reset of the device.
  {device_uuid="GPU-0"} 1
allostat_device_row_remap_failed kind 1 unit "": 1 if a row could not be remapped: the device must be replaced.
  {device_uuid="GPU-0"} 0
allostat_device_retired_pages kind 1 unit "": Retired memory pages of the device, by kind of error.
  {device_uuid="GPU-0",cause="corrected"} 6
  {device_uuid="GPU-0",cause="uncorrected"} 7
allostat_device_pcie_transmit_bytes_total kind 0 unit "bytes": Bytes sent by the device over PCIe.
  {device_uuid="GPU-0"} 1099511627776 created -
allostat_device_pcie_receive_bytes_total kind 0 unit "bytes": Bytes received by the device over PCIe.
  {device_uuid="GPU-0"} 2199023255552 created -
allostat_device_pcie_replays_total kind 0 unit "": Packets sent again over PCIe (replays).
  {device_uuid="GPU-0"} 8 created -
allostat_device_pcie_link_generation kind 1 unit "": Current PCIe link generation; lower while the device is idle.
  {device_uuid="GPU-0"} 5
allostat_device_pcie_link_width kind 1 unit "": Current number of PCIe lanes in use.
  {device_uuid="GPU-0"} 16
allostat_device_nvlink_transmit_bytes_total kind 0 unit "bytes": Payload bytes sent by the device over all its NVLink links.
  {device_uuid="GPU-0"} 4398046511104 created -
allostat_device_nvlink_receive_bytes_total kind 0 unit "bytes": Payload bytes received by the device over all its NVLink links.
  {device_uuid="GPU-0"} 8796093022208 created -
allostat_device_nvlink_links kind 1 unit "": NVLink links of the device by state (active, inactive).
  {device_uuid="GPU-0",state="active"} 17
  {device_uuid="GPU-0",state="inactive"} 1
allostat_device_nvlink_errors_total kind 0 unit "": Errors on active NVLink links by kind: replays, recoveries, CRC errors.
  {device_uuid="GPU-0",kind="replay"} 9 created -
  {device_uuid="GPU-0",kind="recovery"} 10 created -
  {device_uuid="GPU-0",kind="crc_flit"} 11 created -
  {device_uuid="GPU-0",kind="crc_data"} 12 created -
allostat_device_sm_activity_ratio kind 1 unit "ratio": Share of time with busy SMs, averaged over SMs.
  {device_uuid="GPU-0"} 0.625
allostat_device_tensor_activity_ratio kind 1 unit "ratio": Share of time with busy tensor cores.
  {device_uuid="GPU-0"} 0.25
allostat_device_dram_activity_ratio kind 1 unit "ratio": Share of memory bandwidth in use.
  {device_uuid="GPU-0"} 0.375
allostat_device_recovery_action kind 1 unit "": Recovery action that the driver requires: 0 none, 1 reset, 2 host restart, 3 drain, 4 drain and reset.
  {device_uuid="GPU-0"} 0
allostat_device_processes kind 1 unit "": Processes that hold the device, of any owner.
  {device_uuid="GPU-0"} 3
allostat_mig_memory_used_bytes kind 1 unit "bytes": Instance memory in use.
  {device_uuid="GPU-2",mig_uuid="MIG-2-7"} 2147483648
allostat_device_info kind 1 unit "": Device identity; join: * on (job, instance, device_uuid) group_left (model, index) allostat_device_info.
  {device_uuid="GPU-0",plugin="nvidia",vendor="nvidia",device_type="gpu",model="NVIDIA H100",index="0"} 1
  {device_uuid="GPU-1",plugin="nvidia",vendor="nvidia",device_type="gpu",model="NVIDIA H100",index="0"} 1
  {device_uuid="GPU-2",plugin="nvidia",vendor="nvidia",device_type="gpu",model="NVIDIA H100",index="0"} 1
  {device_uuid="fpga0",plugin="acme",vendor="acme",device_type="fpga",model="U250"} 1
allostat_mig_info kind 1 unit "": MIG instance of a partitioned device, with its profile and IDs.
  {device_uuid="GPU-2",mig_uuid="MIG-2-7",profile="MIG 1g.10gb",gpu_instance_id="7",compute_instance_id="0"} 1
allostat_device_up kind 1 unit "": 1 if the device answers; 0 if it is off the bus, needs a reset or is no longer listed by its plugin.
  {device_uuid="GPU-0"} 1
  {device_uuid="GPU-1"} 0
  {device_uuid="GPU-2"} 0
  {device_uuid="fpga0"} 1
allostat_device_stuck kind 1 unit "": 1 while a call to the device exceeds its deadline; its values are absent until it returns.
  {device_uuid="GPU-0"} 0
  {device_uuid="GPU-1"} 1
  {device_uuid="GPU-2"} 0
  {device_uuid="fpga0"} 0
allostat_device_read_timestamp_seconds kind 1 unit "seconds": Time of the last reading of the device.
  {device_uuid="GPU-0"} 1767323045
  {device_uuid="fpga0"} 1767323045
allostat_device_unowned_memory_bytes kind 1 unit "bytes": Device memory in use by no task: other processes, dead processes, the driver.
  {device_uuid="GPU-0"} 5242880
allostat_device_xid_errors_total kind 0 unit "": XID errors reported by the driver, by number; critical XIDs are exposed from the start at 0.
  {device_uuid="GPU-0",xid="48"} 0 created -
  {device_uuid="GPU-0",xid="79"} 2 created -
allostat_device_xid_last_timestamp_seconds kind 1 unit "seconds": Time of the last XID error with this number.
  {device_uuid="GPU-0",xid="79"} 1767323045
allostat_device_stat kind 1 unit "": Plugin-specific statistic, in the unit that the plugin reports; of a fraction, the numerator.
  {device_uuid="fpga0",stat="lanes \"in\" use"} 7
  {device_uuid="fpga0",stat="memory/used",stat_unit="MiB"} 3
allostat_device_plugin_up kind 1 unit "": 1 if the plugin runs; 0 if not, or if GPUs are on the PCI bus without their driver or its library.
  {plugin="fpga"} 0
  {plugin="nvidia"} 1
allostat_device_plugin_faults_total kind 0 unit "": Exits and invalid reports of a device plugin, by reason.
  {plugin="fpga",reason="died"} 3 created -
allostat_collector_oldest_sample_timestamp_seconds kind 1 unit "seconds": Time at which the oldest exposed value was read, as of the last tick; ended tasks are not counted.
  {collector="task"} 1767323045
allostat_allocs_collected_total kind 0 unit "": Ended allocs garbage-collected with their directories, by reason.
  {reason="age"} 0 created -
  {reason="count"} 0 created -
  {reason="disk"} 0 created -
  {reason="disk_unread"} 0 created -
  {reason="requested"} 0 created -
allostat_artifact_bytes_total kind 0 unit "bytes": Bytes of successfully fetched artifacts, as downloaded; of git the files of the working tree.
  {} 0 created -
allostat_artifact_downloads_total kind 0 unit "": Artifacts fetched for managed tasks, by outcome: success or what failed.
  {outcome="archive"} 0 created -
  {outcome="cancelled"} 0 created -
  {outcome="checksum"} 0 created -
  {outcome="git"} 0 created -
  {outcome="install"} 0 created -
  {outcome="limit"} 0 created -
  {outcome="network"} 0 created -
  {outcome="success"} 0 created -
allostat_artifact_received_bytes_total kind 0 unit "bytes": Bytes of artifacts received over HTTP, as they arrive; those of failed downloads count.
  {} 0 created -
allostat_artifact_seconds_total kind 0 unit "seconds": Time spent fetching and unpacking artifacts, successful or not.
  {} 0 created -
allostat_clock_steps_total kind 0 unit "": Steps of the wall clock by more than 0.5 s, in either direction.
  {} 0 created -
allostat_collector_skipped_ticks_total kind 0 unit "": Sampling ticks skipped because the previous one took too long or the host was suspended.
  {} 0 created -
allostat_events_missed_total kind 0 unit "": Events that readers of /v1/events missed because they were no longer retained.
  {} 0 created -
allostat_exec_sessions_total kind 0 unit "": Ended exec sessions by outcome (completed, failed to start, disconnected, unknown exit).
  {outcome="completed"} 0 created -
  {outcome="disconnected"} 0 created -
  {outcome="failed"} 0 created -
  {outcome="unknown"} 0 created -
allostat_http_requests_refused_total kind 0 unit "": Refused HTTP requests and TCP connections, by reason.
  {reason="certificate_expired"} 0 created -
  {reason="certificate_invalid"} 0 created -
  {reason="certificate_name"} 0 created -
  {reason="certificate_untrusted"} 0 created -
  {reason="no_certificate"} 0 created -
  {reason="no_credentials"} 0 created -
  {reason="page"} 0 created -
  {reason="plain_http"} 0 created -
  {reason="rate_limit"} 0 created -
  {reason="socket_only"} 0 created -
  {reason="tls"} 0 created -
  {reason="token_in_clear"} 0 created -
  {reason="too_many_connections"} 0 created -
  {reason="unsent_answers"} 0 created -
  {reason="wrong_host"} 0 created -
  {reason="wrong_password"} 0 created -
  {reason="wrong_token"} 0 created -
allostat_image_pull_seconds_total kind 0 unit "seconds": Time spent pulling container images for managed tasks, successful or not.
  {} 0 created -
allostat_image_pulls_total kind 0 unit "": Container images pulled for managed tasks, by outcome: success or what failed.
  {outcome="cancelled"} 0 created -
  {outcome="failed"} 0 created -
  {outcome="refused"} 0 created -
  {outcome="success"} 0 created -
  {outcome="timeout"} 0 created -
allostat_log_lines_suppressed_total kind 0 unit "": Warnings and errors suppressed because the same line had just been logged many times.
  {} 0 created -
allostat_migrations_total kind 0 unit "": Replacements that were to take over the data of an alloc (sticky ephemeral_disk), by outcome.
  {outcome="failed"} 0 created -
  {outcome="moved"} 0 created -
  {outcome="nothing"} 0 created -
allostat_ports_dynamic kind 1 unit "": Size of the range of dynamic ports (network.min_dynamic_port to network.max_dynamic_port).
  {} 0
allostat_ports_held kind 1 unit "": Ports that managed allocs hold, in the range of dynamic ports and outside of it.
  {range="dynamic"} 0
  {range="other"} 0
allostat_series_dropped_total kind 0 unit "": Series dropped before every scraper read them (budget, unread), or folded into alloc_id="_overflow" (churn).
  {reason="budget",scope="final"} 0 created -
  {reason="churn",scope="alloc"} 0 created -
  {reason="unread",scope="final"} 0 created -
allostat_state_db_write_duration_seconds kind 4 unit "seconds": Duration of a durable commit to the state database, including the sync to disk.
  {} count 0 sum 0 created 1767322045.000000000
    <= 0.001: 0
    <= 0.0025: 0
    <= 0.005: 0
    <= 0.01: 0
    <= 0.025: 0
    <= 0.05: 0
    <= 0.1: 0
    <= 0.25: 0
    <= 1: 0
    <= 5: 0
    <= 30: 0
    <= inf: 0
    schema 3 zero 0 <= 2.938735877055719e-39 spans [0+0] deltas []
allostat_start_phase_duration_seconds kind 4 unit "seconds": Duration of the phases of task starts (prestart, setup, driver) since the agent started.
  {phase="driver"} count 1 sum 0.036 created 1767322045.000000000
    <= 0.005: 0
    <= 0.01: 0
    <= 0.05: 1
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-38+1] deltas [1]
  {phase="prestart"} count 1 sum 0.004 created 1767322045.000000000
    <= 0.005: 1
    <= 0.01: 1
    <= 0.05: 1
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-63+1] deltas [1]
  {phase="setup"} count 1 sum 0.007 created 1767322045.000000000
    <= 0.005: 0
    <= 0.01: 1
    <= 0.05: 1
    <= 0.1: 1
    <= 0.5: 1
    <= 1: 1
    <= 5: 1
    <= 30: 1
    <= 300: 1
    <= inf: 1
    schema 3 zero 0 <= 2.938735877055719e-39 spans [-57+1] deltas [1]
allostat_state_db_write_failures_total kind 0 unit "": Failed commits to the state database, such as a full disk or an I/O error.
  {} 0 created -
allostat_state_db_writes_deduped_total kind 0 unit "": Records not written because the state database already holds the same bytes.
  {} 0 created -
allostat_state_db_writes_total kind 0 unit "": Durable commits to the state database; a commit may hold many records.
  {} 0 created -
allostat_template_actions_total kind 0 unit "": Actions after templates of running tasks changed: restarts, signals and scripts, and those that failed.
  {action="restart"} 0 created -
  {action="script"} 0 created -
  {action="script_failed"} 0 created -
  {action="signal"} 0 created -
  {action="signal_failed"} 0 created -
allostat_template_renders_total kind 0 unit "": Templates of managed tasks rendered at a start or after a change: written, failed, or waiting for a key.
  {outcome="failed"} 0 created -
  {outcome="waiting"} 0 created -
  {outcome="written"} 0 created -
allostat_series kind 1 unit "": Series by family in this response, without this one; families of less than 20 series add up as _other.
  {family="allostat_start_phase_duration_seconds"} 36
  {family="_other"} 418
